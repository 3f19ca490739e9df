"""A chat template of calls that no dialect of the table has."""

from __future__ import annotations

UNKNOWN = (
    "{%- for m in messages -%}{%- if m.tool_calls -%}<|bot|>"
    "{%- for c in m.tool_calls -%}<|zz|>{{ c.function.name }}<|args|>{{ ARGUMENTS }}<|zz_end|>{%- endfor -%}<|eos|>"
    "{%- else -%}<|{{ m.role }}|>{{ m.content }}<|eos|>{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|bot|>{%- endif -%}"
)
AS_OBJECT = UNKNOWN.replace("ARGUMENTS", "c.function.arguments | tojson")
