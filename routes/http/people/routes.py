"""The routes about people, a row each."""

from __future__ import annotations

from routes.http.administration import tokens
from routes.http.people import people, prompts, sign_ins
from routes.protocol.application import Route

PEOPLE = (
    Route("/tokens", tokens.list_tokens),
    Route("/tokens", tokens.create_token, methods=["POST"]),
    Route("/tokens/{name}", tokens.delete_token, methods=["DELETE"]),
    Route("/people", people.list_people),
    Route("/people/{name}", people.change_person, methods=["PATCH"]),
    Route("/sign-ins", sign_ins.list_sign_ins),
    Route("/sign-ins", sign_ins.create_sign_in, methods=["POST"]),
    Route("/sign-ins", sign_ins.delete_sign_ins, methods=["DELETE"]),
    Route("/sign-ins/{sign_in}", sign_ins.delete_sign_in, methods=["DELETE"]),
    Route("/prompts", prompts.list_prompts),
    Route("/prompts/{prompt}", prompts.show_prompt),
    Route("/prompts/{prompt}", prompts.save_prompt, methods=["PUT"]),
    Route("/prompts/{prompt}", prompts.delete_prompt, methods=["DELETE"]),
    Route("/preferences", prompts.show_preferences),
    Route("/preferences", prompts.save_preferences, methods=["PUT"]),
)
