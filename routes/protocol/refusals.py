"""Refusals: the answer to each kind of error that a request can meet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict
from starlette.exceptions import HTTPException

from app.budget.kinds import SOON_S, BudgetSpent
from app.checkpoints.scratch import NoSuchState
from app.checkpoints.undo import MOST_NAMED, UndoRefused
from app.config.folders import FolderUnsafe
from app.config.runtime_changes import NotChangeable
from app.context.project_files import DigestChanged
from app.core.profile_spec import ModeFixed
from app.mcp.declared_trust import NotDeclared, ServerUnseen
from app.mcp.servers import CommandsForbidden, NothingHeld, ServerOfFile, UnfitServer
from app.memory.limits import MemoryFull, UnfitMemory
from app.models.endpoints.model_registry import UnknownModel
from app.models.endpoints.registry import InvalidEndpoint, ReadOnlyEndpoint, UnknownEndpoint
from app.models.serving.refusals import TooLittleMemory, UnfitFile, UnknownServedModel
from app.notifications.sender import UnfitKeys, UnfitUrl
from app.notifications.service import TargetDisabled, TargetForbidden, TooManyTargets
from app.policy.approvals import AlreadyDecided, ApprovalExpired, NoApproval
from app.policy.entitlements import NotEntitled
from app.policy.stored_grants import UnfitArguments
from app.profiles.library import InvalidProfile, ProfileConflict, ProfileForbidden, ProfileMissing, UnknownProfile
from app.replay.recording import UnusableRecording
from app.runs.branching.forking import NotForkable
from app.runs.branching.run_cut import Unfit
from app.runs.composition.compacting import NothingToCompact
from app.runs.composition.refusals import ModeForbidden, UnknownTool
from app.runs.connections import NotAllowedAnyMore, TooManyStreams
from app.runs.shared.homes import HomeAway
from app.schedules.templates import UnfitDelivery
from app.schedules.times import UnfitTime
from app.schedules.triggers import TriggerOff
from app.secrets.library import SecretExists, UnknownSecret
from app.secrets.sources import SecretUnavailable, UnfitSecret
from app.storage.changes import StoreFailed
from app.transcript.inbox import InboxFull
from app.transcript.run_request import KeyReused, NotFound, RunOver, SessionBusy, Stopping
from app.workspace.changing import NameTaken
from app.workspace.open_file import NotSent
from app.workspace.placing import UnsafeName
from routes.protocol.errors import Refused, TooSoon
from tools.base.pause_check import Paused
from tools.jobs.records import JobsFailed, NoSuchJob
from tools.mcp.model import HeldChanged, NoSuchServer
from tools.mcp.offer_calls import RequestFailed


def _http(error: HTTPException) -> Refused:
    code, message = HTTP_CODES.get(error.status_code, "http_error"), f"{error.detail}. GET / lists the routes."
    return Refused(error.status_code, code, message, error.headers)  # `Allow`, where the method is wrong


def _undo(error: UndoRefused) -> Refused:
    return Refused(409, "undo_refused", str(error), files=[asdict(one) for one in error.conflicts[:MOST_NAMED]])


HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
BROKEN = "Internal error (see the server log)."

# The answer to each kind of error. The last row is for unforeseen ones; the server logs them with their trace.
REFUSALS: dict[type[Exception], Callable[[Any], Refused]] = {
    Refused: lambda error: error,
    TooSoon: lambda error: error,
    NotAllowedAnyMore: lambda error: Refused(401, "unauthorized", str(error)),
    TooManyStreams: lambda error: TooSoon("too_many_streams", str(error), time.time() + SOON_S),
    NotFound: lambda error: Refused(404, "not_found", str(error)),
    NoSuchJob: lambda error: Refused(404, "not_found", f"{error} GET /jobs lists yours."),
    JobsFailed: lambda error: Refused(503, "jobs_failed", str(error)),
    SessionBusy: lambda error: Refused(409, "session_busy", str(error), run=error.run),
    NoSuchState: lambda error: Refused(409, "not_forkable", str(error)),
    Unfit: lambda error: Refused(422, "invalid_request", str(error)),
    NothingToCompact: lambda error: Refused(409, "nothing_to_compact", str(error)),
    NotForkable: lambda error: Refused(409, "not_forkable", str(error)),
    UnusableRecording: lambda error: Refused(409, "not_replayable", str(error)),
    BudgetSpent: lambda error: TooSoon("budget", str(error), error.reset, budget=error.budget),
    NoApproval: lambda error: Refused(404, "not_found", str(error)),
    AlreadyDecided: lambda error: Refused(
        409, "already_decided", str(error), decision=error.row.state, by=error.row.by, door=error.row.door
    ),
    ApprovalExpired: lambda error: Refused(410, "approval_expired", str(error)),
    UnfitArguments: lambda error: Refused(422, "unfit_arguments", str(error)),
    RunOver: lambda error: Refused(409, "run_ended", str(error)),
    InboxFull: lambda error: TooSoon("too_many_messages", str(error), time.time() + SOON_S),
    UndoRefused: _undo,
    NameTaken: lambda error: Refused(409, "file_exists", str(error)),
    NotSent: lambda error: Refused(403, "private_file", str(error)),
    DigestChanged: lambda error: Refused(409, "file_changed", str(error)),
    MemoryFull: lambda error: Refused(409, "memory_full", str(error)),
    UnfitMemory: lambda error: Refused(422, "invalid_request", str(error)),
    UnfitTime: lambda error: Refused(422, "invalid_request", str(error)),
    UnfitDelivery: lambda error: Refused(422, "invalid_request", str(error)),
    TriggerOff: lambda error: Refused(409, "trigger_off", f"{error} Its owner can switch it on."),
    UnsafeName: lambda error: Refused(422, "unsafe_name", str(error)),
    KeyReused: lambda error: Refused(422, "key_reused", str(error)),
    Paused: lambda error: Refused(503, "paused", str(error)),
    Stopping: lambda error: Refused(503, "stopping", str(error)),
    NoSuchServer: lambda error: Refused(404, "not_found", str(error)),
    RequestFailed: lambda error: Refused(502, "mcp_failed", str(error)),
    NothingHeld: lambda error: Refused(404, "not_found", str(error)),
    NotDeclared: lambda error: Refused(404, "not_found", str(error)),
    ServerUnseen: lambda error: Refused(409, "server_unseen", str(error)),
    HeldChanged: lambda error: Refused(409, "tool_changed", str(error)),
    ServerOfFile: lambda error: Refused(409, "server_of_file", str(error)),
    CommandsForbidden: lambda error: Refused(403, "forbidden", str(error)),
    UnfitServer: lambda error: Refused(422, "unfit_server", str(error)),
    UnknownEndpoint: lambda error: Refused(404, "not_found", str(error)),
    ReadOnlyEndpoint: lambda error: Refused(409, "endpoint_of_settings", str(error)),
    UnfitFile: lambda error: Refused(422, "unfit_model", str(error)),
    TooLittleMemory: lambda error: Refused(409, "model_memory", str(error)),
    UnknownServedModel: lambda error: Refused(404, "not_found", str(error)),
    UnknownSecret: lambda error: Refused(404, "not_found", str(error)),
    SecretExists: lambda error: Refused(409, "secret_exists", str(error)),
    UnfitSecret: lambda error: Refused(422, "unfit_secret", str(error)),
    SecretUnavailable: lambda error: Refused(503, "secret_unavailable", str(error)),
    InvalidEndpoint: lambda error: Refused(422, "unfit_endpoint", str(error)),
    NotChangeable: lambda error: Refused(422, "unfit_setting", str(error)),
    UnknownModel: lambda error: Refused(422, "unknown_model", f"model: {error}"),
    UnknownProfile: lambda error: Refused(422, "unknown_profile", str(error)),
    ProfileMissing: lambda error: Refused(403, "profile_missing", str(error)),
    ProfileForbidden: lambda error: Refused(403, "forbidden", str(error)),
    ProfileConflict: lambda error: Refused(409, "profile_conflict", str(error)),
    InvalidProfile: lambda error: Refused(422, "unfit_profile", str(error)),
    UnknownTool: lambda error: Refused(422, "unknown_tool", str(error)),
    ModeFixed: lambda error: Refused(422, "mode_fixed", str(error)),
    ModeForbidden: lambda error: Refused(403, "forbidden", str(error)),
    NotEntitled: lambda error: Refused(403, "forbidden", str(error)),
    TargetForbidden: lambda error: Refused(403, "forbidden", str(error)),
    TargetDisabled: lambda error: Refused(409, "target_disabled", str(error)),
    TooManyTargets: lambda error: Refused(409, "too_many_targets", str(error)),
    UnfitUrl: lambda error: Refused(422, "unfit_url", str(error)),
    UnfitKeys: lambda error: Refused(422, "invalid_request", str(error)),
    FolderUnsafe: lambda error: Refused(503, "folder_unsafe", str(error)),
    HomeAway: lambda error: Refused(503, "home_away", str(error), node=error.node),
    StoreFailed: lambda error: Refused(503, "storage_failed", str(error)),
    HTTPException: _http,
    Exception: lambda _: Refused(500, "internal", BROKEN),
}


FORESEEN = tuple(kind for kind in REFUSALS if kind is not Exception)


def refuse(error: Exception) -> Refused:
    """Return the answer of the error's nearest kind."""
    return next(REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS)(error)
