"""Chat templates for real servers: what a model's server makes of its messages decides what can be said of it."""

from __future__ import annotations

TURNS = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"""
ASKED = """{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
PLAIN = TURNS + ASKED
REFUSES = "{%- if tools %}{{ raise_exception('This model takes no tools.') }}{%- endif %}" + PLAIN
# Thoughts begin in the prompt. In the first llama.cpp sees no thoughts, of the second it learns how to send them apart.
MUSES = TURNS + ASKED.replace("assistant\\n", "assistant\\n<think>\\n")
MUSES_APART = (
    TURNS.replace(
        "m.content +",
        "(('<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n') if m.reasoning_content else '') + m.content +",
    )
    + MUSES[len(TURNS) :]
)
CALLS = """{%- if tools %}{{- '<|im_start|>system\\nTools:\\n' }}
{%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' and m.tool_calls %}{{- '<|im_start|>assistant' }}
{%- for c in m.tool_calls %}{{- '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments | tojson }}{{- '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}"""
WITH_CALLS = CALLS + ASKED
# As strict as templates are: one system message, first, and the roles in turn.
STRICT = (
    """{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}
{%- endif %}
{%- if not loop.first and m.role == loop.previtem.role and m.role != 'tool' %}
{{- raise_exception('Conversation roles must alternate.') }}{%- endif %}
{%- if m.role == 'tool' and loop.previtem.role not in ('tool', 'assistant') %}
{{- raise_exception('A result without a call.') }}{%- endif %}
{%- endfor %}
"""
    + WITH_CALLS
)
# As Gemma's: no system message, and the user begins.
USER_BEGINS = (
    """{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}
{%- if messages[0].role != 'user' %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}
"""
    + PLAIN
)
# Calls that no dialect of the table has.
UNKNOWN = (
    "{%- for m in messages -%}{%- if m.tool_calls -%}<|bot|>"
    "{%- for c in m.tool_calls -%}<|zz|>{{ c.function.name }}<|args|>{{ ARGUMENTS }}<|zz_end|>{%- endfor -%}<|eos|>"
    "{%- else -%}<|{{ m.role }}|>{{ m.content }}<|eos|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|bot|>{%- endif -%}"
)
AS_OBJECT = UNKNOWN.replace("ARGUMENTS", "c.function.arguments | tojson")
