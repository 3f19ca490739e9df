"""The texts of files, of the request and of MCP servers that a run's model reads: in its prompt, and as sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path

from msgspec import Struct

from app.config.settings import Settings
from app.context.lesson import Lesson
from app.context.persona import Persona
from app.context.project_files import ProjectContext
from app.context.prompt import Override, Prompt, shared_opening
from app.context.run_rules import RunFacts, run_rules
from app.context.server_notes import SKILLS, notes_of_servers, titled
from app.context.skills import skill_lines
from app.context.view import Opening
from app.core.clock import Clock
from app.core.messages import Message
from app.core.provider import CallForm
from app.mcp.servers import McpServers
from app.models.endpoints.failover import ModelRoute
from app.provenance.quotation import of_profile, of_prompt, of_summaries
from app.provenance.read_texts import Source
from app.storage.store import Store
from tools.tool import Tool


class RunTexts(Struct, frozen=True):
    """Persona, override (`system` of the request), project and the instructions of profiles (`profile`) stay as they
    are now in all rounds of the run. `server_skills` are those of MCP servers that it may read, by server.
    """

    settings: Settings
    store: Store
    mcp: McpServers
    persona: Persona
    override: Override | None
    project: ProjectContext
    profile: str = ""
    secrets: str = ""
    facts: RunFacts | None = None
    server_skills: Callable[[], Mapping[str, str]] = dict

    async def sources(self, session: str) -> Sequence[Source]:
        """The texts of others that a model reads besides the messages of its session."""
        summaries = await self.store.summaries(session)
        instructions = "\n\n".join((self.project.agents, *(skill.text for skill in self.project.skills)))
        texts = of_prompt(self.persona, self.override, self.mcp.tools(), instructions.strip(), self.mcp.instructions())
        return [*texts, *of_profile(self.profile), *of_summaries(row.text for row in summaries)]

    def opening(self, workspace: Path, guards: str, route: ModelRoute, lesson: Lesson) -> Opening:
        """The beginning of the run's requests."""
        return Prompt(Clock(self.settings.time_zone), lesson, partial(self._write, workspace, guards, route))

    def _write(
        self,
        workspace: Path,
        guards: str,
        route: ModelRoute,
        tools: Sequence[Tool],
        *,
        call_form: CallForm,
        today: date,
    ) -> Sequence[Message]:
        window, share = route.known_window, self.settings.mcp_tools_share
        skills = filter(None, (skill_lines(self.project.skills), titled(self.server_skills(), window, share, SKILLS)))
        native = call_form is CallForm.NATIVE
        return shared_opening(
            tools,
            workspace=workspace,
            persona=self.persona,
            override=self.override,
            guards=guards,
            project=self.project.agents,
            profile=self.profile,
            secrets=self.secrets,
            notes=notes_of_servers(self.mcp.instructions(), self.mcp.sources(), tools, window, share),
            rules=run_rules(self.facts, tools, window, native=native) if self.facts else "",
            skills="\n\n".join(skills),
            call_form=call_form,
            today=today,
        )
