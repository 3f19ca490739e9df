"""How each dialect writes calls: the other half of the parser, for tests only."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

Call = tuple[str, dict[str, Any]]
Writer = Callable[[Sequence[Call]], str]
NS = "]<]minimax[>["


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def raw(value: Any) -> str:
    return value if isinstance(value, str) else dumped(value)


def enveloped(call: Call, name: str = "name", arguments: str = "arguments") -> str:
    return dumped({name: call[0], arguments: call[1]})


def each(before: str, after: str, between: str = "\n", arguments: str = "arguments", name: str = "name") -> Writer:
    return lambda calls: between.join(f"{before}{enveloped(call, name, arguments)}{after}" for call in calls)


def array(before: str, after: str, arguments: str = "arguments", name: str = "name") -> Writer:
    return lambda calls: before + "[" + ", ".join(enveloped(call, name, arguments) for call in calls) + "]" + after


def lines(before: str, after: str, between: str = "\n") -> Writer:
    return lambda calls: before + between.join(enveloped(call) for call in calls) + after


def headed(form: str, before: str = "", after: str = "", between: str = "") -> Writer:
    """`form` has N for the name, I for a number, J for the arguments."""

    def write(calls: Sequence[Call]) -> str:
        items = [
            form.replace("%I", str(index)).replace("%N", name).replace("%J", dumped(arguments))
            for index, (name, arguments) in enumerate(calls)
        ]
        return before + between.join(items) + after

    return write


def tagged(
    head: str, pair: str, tail: str, before: str = "", after: str = "", between: str = "\n", joint: str = ""
) -> Writer:
    """`pair` has %K for the key, %V for the raw value, %S for whether it is a string, %T for its type."""

    def write(calls: Sequence[Call]) -> str:
        items = []
        for name, arguments in calls:
            pairs = [
                pair.replace("%K", key)
                .replace("%S", "true" if isinstance(value, str) else "false")
                .replace("%T", kind(value))
                .replace("%V", raw(value))
                for key, value in arguments.items()
            ]
            items.append(head.replace("%N", name) + joint.join(pairs) + tail)
        return before + between.join(items) + after

    return write


def kind(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def pythonic(call: Call) -> str:
    return f"{call[0]}({', '.join(f'{key}={value!r}' for key, value in call[1].items())})"


def python(before: str, after: str, between: str = ", ", form: str = "%C") -> Writer:
    return lambda calls: before + between.join(form.replace("%C", pythonic(call)) for call in calls) + after


def dsml(mark: str, wrapper: str) -> Writer:
    return tagged(
        f'<{mark}invoke name="%N">\n',
        f'<{mark}parameter name="%K" string="%S">%V</{mark}parameter>\n',
        f"</{mark}invoke>",
        f"<{mark}{wrapper}>\n",
        f"\n</{mark}{wrapper}>",
    )


def invoke(wrapper: str, prefix: str = "") -> Writer:
    return tagged(
        f'<{prefix}invoke name="%N">\n',
        f'<{prefix}parameter name="%K">%V</{prefix}parameter>\n',
        f"</{prefix}invoke>",
        f"<{wrapper}>\n",
        f"\n</{wrapper}>",
    )


def pairs(tag: str = "tool_call", prefix: str = "", newline: str = "\n", inner: str = "\n") -> Writer:
    return tagged(
        f"<{tag}>%N{newline}",
        f"<{prefix}arg_key>%K</{prefix}arg_key>{inner}<{prefix}arg_value>%V</{prefix}arg_value>{newline}",
        f"</{tag}>",
        between=newline,
    )


def literal(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, list):
        return "[" + ",".join(literal(item, quote) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{literal(item, quote)}" for key, item in value.items()) + "}"
    return dumped(value)


def literals(before: str, after: str, quote: str) -> Writer:
    return lambda calls: "".join(f"{before}call:{name}{literal(arguments, quote)}{after}" for name, arguments in calls)


def nested(key: str, value: Any) -> str:
    if isinstance(value, dict):
        inner = "".join(nested(name, item) for name, item in value.items())
    elif isinstance(value, list):
        inner = "".join(nested("item", item) for item in value)
    else:
        inner = raw(value)
    return f"{NS}<{key}>{inner}{NS}</{key}>"


def minimax_m3(calls: Sequence[Call]) -> str:
    items = [
        f'{NS}<invoke name="{name}">{"".join(nested(*pair) for pair in arguments.items())}{NS}</invoke>\n'
        for name, arguments in calls
    ]
    return f"{NS}<tool_call>\n{''.join(items)}{NS}</tool_call>"


def elements(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"<{name}>\n" + "".join(f"<{key}>{raw(value)}</{key}>\n" for key, value in arguments.items()) + f"</{name}>"
        for name, arguments in calls
    )


def assignments(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"<tool_call>{name}" + "".join(f" {key}={dumped(value)}" for key, value in arguments.items()) + "</tool_call>"
        for name, arguments in calls
    )


def arrow(calls: Sequence[Call]) -> str:
    return "\n".join(
        f'[TOOL_CALL]\n{{tool => "{name}", args => {{\n'
        + "\n".join(f"  --{key} {dumped(value)}" for key, value in arguments.items())
        + "\n}}\n[/TOOL_CALL]"
        for name, arguments in calls
    )


def code_arrow(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"<tool_code>\n{{tool => '{name}', args => '"
        + "".join(f"<{key}>{raw(value)}</{key}>" for key, value in arguments.items())
        + "'}\n</tool_code>"
        for name, arguments in calls
    )


def openai(calls: Sequence[Call]) -> str:
    return dumped(
        {
            "tool_calls": [
                {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": dumped(arguments)}}
                for index, (name, arguments) in enumerate(calls)
            ]
        }
    )


def apertus(calls: Sequence[Call]) -> str:
    return "<|tools_prefix|>[" + ", ".join(dumped({name: given}) for name, given in calls) + "]<|tools_suffix|>"


def muse(calls: Sequence[Call]) -> str:
    write = invoke("atem:function_calls", "atem:")
    return "<|start|>assistant".join(f" to={call[0]}<|message|>{write([call])}<|eom|>" for call in calls)


def beam(calls: Sequence[Call]) -> str:
    head = " to=%N<|channel|>analysis <|constrain|>xml<|message|>"
    write = tagged(head, '<rfl:parameter name="%K">\n%V\n</rfl:parameter>', "", joint="\n")
    return "<|end|><|start|>assistant".join(write([call]) for call in calls) + "<|call|>"


def plamo(mark: str) -> str:
    return f"<|plamo:{mark}:plamo|>"
