"""Programs and SDKs that can be pointed at a server: a row each, with what they read or what one writes.

Texts hold `{url}`, the server's address, and `{model}`. A key is never among them: it is in DRAGOMAN_TOKEN.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

TOKEN = "DRAGOMAN_TOKEN"


class Block(Struct, frozen=True):
    """Lines of one language, under a sentence. With `path` they are a file that the program reads, `~` being home."""

    lead: str
    language: str
    text: str
    path: str = ""


class Program(Struct, frozen=True):
    """`start` has the commands that set its environment, and that run it; without them its code is among `blocks`."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    start: str = ""

    def shown(self, url: str, model: str) -> Iterator[Block]:
        """All blocks for this server, what makes a token first."""
        yield Block(KEY_LEAD, "console", f"dragoman token create --name {self.name}\nexport {TOKEN}=dgm_...\n")
        for block in self.blocks:
            lead = f"{self.title} reads `{block.path}`:" if block.path else block.lead
            yield Block(lead, block.language, filled(block.text, url, model), block.path)
        if self.start:
            yield Block("Start it:", "console", filled(self.start, url, model))


KEY_LEAD = "The key is a token of the server; while the server has none, any text will do:"


def filled(text: str, url: str, model: str) -> str:
    return text.replace("{url}", url).replace("{model}", model)


def code(lead: str, language: str, text: str) -> tuple[Block, ...]:
    return (Block(lead, language, text.lstrip("\n")),)


PROGRAMS = (
    Program(
        "codex",
        "Codex",
        (
            Block(
                "",
                "toml",
                """model = "{model}"
model_provider = "dragoman"

[model_providers.dragoman]
name = "dragoman"
base_url = "{url}/v1"
env_key = "DRAGOMAN_TOKEN"
wire_api = "responses"
""",
                "~/.codex/config.toml",
            ),
        ),
        "codex\n",
    ),
    Program(
        "claude",
        "Claude Code",
        (
            Block(
                "",
                "json",
                """{
  "env": {
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_MODEL": "{model}",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}"
  }
}
""",
                "~/.claude/settings.json",
            ),
        ),
        "export ANTHROPIC_AUTH_TOKEN=$DRAGOMAN_TOKEN\nclaude\n",
    ),
    Program(
        "opencode",
        "opencode",
        (
            Block(
                "",
                "json",
                """{
  "model": "dragoman/{model}",
  "provider": {
    "dragoman": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "dragoman",
      "options": {"baseURL": "{url}/v1", "apiKey": "{env:DRAGOMAN_TOKEN}"},
      "models": {"{model}": {"name": "{model}"}}
    }
  }
}
""",
                "~/.config/opencode/opencode.json",
            ),
        ),
        "opencode\n",
    ),
    Program(
        "aider",
        "aider",
        (
            Block(
                "",
                "yaml",
                "model: openai/{model}\nopenai-api-base: {url}/v1\nshow-model-warnings: false\n",
                "~/.aider.conf.yml",
            ),
        ),
        "export OPENAI_API_KEY=$DRAGOMAN_TOKEN\naider\n",
    ),
    Program(
        "cline",
        "Cline",
        (
            Block(
                "Cline keeps a server and its key in its own files:",
                "console",
                'cline auth -p openai-compatible -b {url}/v1 -m {model} -k "$DRAGOMAN_TOKEN"\n',
            ),
        ),
        "cline\n",
    ),
    Program(
        "continue",
        "Continue",
        (
            Block(
                "",
                "yaml",
                """name: dragoman
version: 1.0.0
schema: v1
models:
  - name: {model}
    provider: openai
    model: {model}
    apiBase: {url}/v1
    apiKey: ${{ secrets.DRAGOMAN_TOKEN }}
    capabilities:
      - tool_use
    roles:
      - chat
""",
                "~/.continue/config.yaml",
            ),
        ),
        "cn\n",
    ),
    Program(
        "llm",
        "llm",
        (
            Block(
                "",
                "yaml",
                """- model_id: dragoman
  model_name: {model}
  api_base: {url}/v1
  api_key_name: dragoman
  supports_tools: true
  supports_schema: true
  vision: true
""",
                "~/.config/io.datasette.llm/extra-openai-models.yaml",
            ),
        ),
        'llm keys set dragoman --value "$DRAGOMAN_TOKEN"\nllm -m dragoman "Hello"\n',
    ),
    Program(
        "openai",
        "OpenAI's SDK for Python",
        code(
            "In Python:",
            "python",
            """
import os

from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key=os.environ["DRAGOMAN_TOKEN"])
message = {"role": "user", "content": "Hello"}
answer = client.chat.completions.create(model="{model}", messages=[message])
print(answer.choices[0].message.content)
""",
        ),
    ),
    Program(
        "openai-js",
        "OpenAI's SDK for JavaScript",
        code(
            "In JavaScript:",
            "js",
            """
import OpenAI from "openai";

const client = new OpenAI({ baseURL: "{url}/v1", apiKey: process.env.DRAGOMAN_TOKEN });
const message = { role: "user", content: "Hello" };
const answer = await client.chat.completions.create({ model: "{model}", messages: [message] });
console.log(answer.choices[0].message.content);
""",
        ),
    ),
    Program(
        "anthropic",
        "Anthropic's SDK for Python",
        code(
            "In Python:",
            "python",
            """
import os

from anthropic import Anthropic

client = Anthropic(base_url="{url}", api_key=os.environ["DRAGOMAN_TOKEN"])
message = {"role": "user", "content": "Hello"}
answer = client.messages.create(model="{model}", max_tokens=1024, messages=[message])
print(answer.content[-1].text)
""",
        ),
    ),
    Program(
        "ai",
        "The AI SDK",
        code(
            "In JavaScript:",
            "js",
            """
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";

const dragoman = createOpenAICompatible({
  name: "dragoman",
  baseURL: "{url}/v1",
  apiKey: process.env.DRAGOMAN_TOKEN,
});
const { text } = await generateText({ model: dragoman("{model}"), prompt: "Hello" });
console.log(text);
""",
        ),
    ),
    Program(
        "langchain",
        "LangChain",
        code(
            "In Python:",
            "python",
            """
import os

from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model="{model}",
    base_url="{url}/v1",
    api_key=os.environ["DRAGOMAN_TOKEN"],
    stream_usage=True,
)
print(model.invoke("Hello").text)
""",
        ),
    ),
    Program(
        "pydantic-ai",
        "Pydantic AI",
        code(
            "In Python:",
            "python",
            """
import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url="{url}/v1", api_key=os.environ["DRAGOMAN_TOKEN"])
agent = Agent(OpenAIChatModel("{model}", provider=provider))
print(agent.run_sync("Hello").output)
""",
        ),
    ),
    Program(
        "openai-agents",
        "OpenAI's Agents SDK",
        code(
            "In Python:",
            "python",
            """
import os

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url="{url}/v1", api_key=os.environ["DRAGOMAN_TOKEN"])
agent = Agent(name="dragoman", model=OpenAIResponsesModel("{model}", client))
print(Runner.run_sync(agent, "Hello").final_output)
""",
        ),
    ),
    Program(
        "ag-ui",
        "AG-UI's HttpAgent",
        code(
            "In JavaScript:",
            "js",
            """
import { HttpAgent } from "@ag-ui/client";

const headers = { Authorization: `Bearer ${process.env.DRAGOMAN_TOKEN}` };
const agent = new HttpAgent({ url: "{url}/ag-ui", headers });
agent.addMessage({ id: "1", role: "user", content: "Hello" });
const { newMessages } = await agent.runAgent({ forwardedProps: { model: "{model}" } });
console.log(newMessages.at(-1).content);
""",
        ),
    ),
)
