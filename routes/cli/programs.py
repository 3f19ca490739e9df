"""Programs and SDKs that can be pointed at a server: a row each, with what they read or what one writes.

Texts hold `{url}`, the server's address, and `{model}`. A key is never among them: it is in DRAGOMAN_TOKEN.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

TOKEN = "DRAGOMAN_TOKEN"
KEY_LEAD = "The key is a token of the server; while the server has none, any text will do:"


class Block(Struct, frozen=True):
    """Lines of one language, under a sentence. With `path` they are a file that the program reads, `~` being home."""

    lead: str
    language: str
    text: str
    path: str = ""


class Program(Struct, frozen=True):
    """`text` is the file at `path` that the program reads, or what stands under the sentence `lead`.

    `start` has the commands that set its environment, and that run it; without them `text` is its code.
    """

    name: str
    title: str
    language: str
    text: str
    path: str = ""
    lead: str = ""
    start: str = ""

    def shown(self, url: str, model: str) -> Iterator[Block]:
        """All blocks for this server, what makes a token first."""
        yield Block(KEY_LEAD, "console", f"dragoman token create --name {self.name}\nexport {TOKEN}=dgm_...\n")
        lead = f"{self.title} reads `{self.path}`:" if self.path else self.lead
        yield Block(lead, self.language, filled(self.text, url, model), self.path)
        if self.start:
            yield Block("Start it:", "console", filled(self.start, url, model))


def filled(text: str, url: str, model: str) -> str:
    return text.replace("{url}", url).replace("{model}", model)


EDITOR = """{
  "agent_servers": {
    "dragoman": {
      "command": "dragoman",
      "args": ["acp", "--url", "{url}"],
      "env": {}
    }
  }
}
"""
ZED = EDITOR.replace('"command"', '"type": "custom",\n      "command"')
MCP_ENTRY = """{
  "mcpServers": {
    "dragoman": {"command": "dragoman", "args": ["mcp", "serve", "--server", "{url}"]}
  }
}
"""
PROGRAMS = (
    Program("zed", "Zed", "json", ZED, path="~/.config/zed/settings.json", start="zed .\n"),
    Program("jetbrains", "JetBrains' AI Assistant", "json", EDITOR, path="~/.jetbrains/acp.json", start="idea .\n"),
    Program(
        "codex",
        "Codex",
        "toml",
        """model = "{model}"
model_provider = "dragoman"

[model_providers.dragoman]
name = "dragoman"
base_url = "{url}/v1"
env_key = "DRAGOMAN_TOKEN"
wire_api = "responses"
""",
        path="~/.codex/config.toml",
        start="codex\n",
    ),
    Program(
        "claude",
        "Claude Code",
        "json",
        """{
  "env": {
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_MODEL": "{model}",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}"
  }
}
""",
        path="~/.claude/settings.json",
        start="export ANTHROPIC_AUTH_TOKEN=$DRAGOMAN_TOKEN\nclaude\n",
    ),
    Program(
        "opencode",
        "opencode",
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
        path="~/.config/opencode/opencode.json",
        start="opencode\n",
    ),
    Program(
        "aider",
        "aider",
        "yaml",
        "model: openai/{model}\nopenai-api-base: {url}/v1\nshow-model-warnings: false\n",
        path="~/.aider.conf.yml",
        start="export OPENAI_API_KEY=$DRAGOMAN_TOKEN\naider\n",
    ),
    Program(
        "cline",
        "Cline",
        "console",
        'cline auth -p openai-compatible -b {url}/v1 -m {model} -k "$DRAGOMAN_TOKEN"\n',
        lead="Cline keeps a server and its key in its own files:",
        start="cline\n",
    ),
    Program(
        "continue",
        "Continue",
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
        path="~/.continue/config.yaml",
        start="cn\n",
    ),
    Program(
        "llm",
        "llm",
        "yaml",
        """- model_id: dragoman
  model_name: {model}
  api_base: {url}/v1
  api_key_name: dragoman
  supports_tools: true
  supports_schema: true
  vision: true
""",
        path="~/.config/io.datasette.llm/extra-openai-models.yaml",
        start='llm keys set dragoman --value "$DRAGOMAN_TOKEN"\nllm -m dragoman "Hello"\n',
    ),
    Program(
        "openai",
        "OpenAI's SDK for Python",
        "python",
        """import os

from openai import OpenAI

client = OpenAI(base_url="{url}/v1", api_key=os.environ["DRAGOMAN_TOKEN"])
message = {"role": "user", "content": "Hello"}
answer = client.chat.completions.create(model="{model}", messages=[message])
print(answer.choices[0].message.content)
""",
        lead="In Python:",
    ),
    Program(
        "openai-js",
        "OpenAI's SDK for JavaScript",
        "js",
        """import OpenAI from "openai";

const client = new OpenAI({ baseURL: "{url}/v1", apiKey: process.env.DRAGOMAN_TOKEN });
const message = { role: "user", content: "Hello" };
const answer = await client.chat.completions.create({ model: "{model}", messages: [message] });
console.log(answer.choices[0].message.content);
""",
        lead="In JavaScript:",
    ),
    Program(
        "anthropic",
        "Anthropic's SDK for Python",
        "python",
        """import os

from anthropic import Anthropic

client = Anthropic(base_url="{url}", api_key=os.environ["DRAGOMAN_TOKEN"])
message = {"role": "user", "content": "Hello"}
answer = client.messages.create(model="{model}", max_tokens=1024, messages=[message])
print(answer.content[-1].text)
""",
        lead="In Python:",
    ),
    Program(
        "ai",
        "The AI SDK",
        "js",
        """import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";

const dragoman = createOpenAICompatible({
  name: "dragoman",
  baseURL: "{url}/v1",
  apiKey: process.env.DRAGOMAN_TOKEN,
});
const { text } = await generateText({ model: dragoman("{model}"), prompt: "Hello" });
console.log(text);
""",
        lead="In JavaScript:",
    ),
    Program(
        "langchain",
        "LangChain",
        "python",
        """import os

from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model="{model}",
    base_url="{url}/v1",
    api_key=os.environ["DRAGOMAN_TOKEN"],
    stream_usage=True,
)
print(model.invoke("Hello").text)
""",
        lead="In Python:",
    ),
    Program(
        "pydantic-ai",
        "Pydantic AI",
        "python",
        """import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url="{url}/v1", api_key=os.environ["DRAGOMAN_TOKEN"])
agent = Agent(OpenAIChatModel("{model}", provider=provider))
print(agent.run_sync("Hello").output)
""",
        lead="In Python:",
    ),
    Program(
        "openai-agents",
        "OpenAI's Agents SDK",
        "python",
        """import os

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url="{url}/v1", api_key=os.environ["DRAGOMAN_TOKEN"])
agent = Agent(name="dragoman", model=OpenAIResponsesModel("{model}", client))
print(Runner.run_sync(agent, "Hello").final_output)
""",
        lead="In Python:",
    ),
    Program(
        "ag-ui",
        "AG-UI's HttpAgent",
        "js",
        """import { HttpAgent } from "@ag-ui/client";

const headers = { Authorization: `Bearer ${process.env.DRAGOMAN_TOKEN}` };
const agent = new HttpAgent({ url: "{url}/ag-ui", headers });
agent.addMessage({ id: "1", role: "user", content: "Hello" });
const { newMessages } = await agent.runAgent({ forwardedProps: { model: "{model}" } });
console.log(newMessages.at(-1).content);
""",
        lead="In JavaScript:",
    ),
    Program("mcp-claude", "Claude Code", "json", MCP_ENTRY, path="~/.claude.json", start="claude\n"),
    Program("mcp-cursor", "Cursor", "json", MCP_ENTRY, path="~/.cursor/mcp.json"),
    Program(
        "mcp-codex",
        "Codex",
        "toml",
        """
[mcp_servers.dragoman]
command = "dragoman"
args = ["mcp", "serve", "--server", "{url}"]
env_vars = ["DRAGOMAN_TOKEN"]
""",
        path="~/.codex/config.toml",
        start="codex\n",
    ),
)
