"""The lane of OpenAI's Responses: `POST /v1/responses`, and its responses again under their ids."""
