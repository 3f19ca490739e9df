"""LiteLLM's proxy. python -m benchmarks.rivals.with_litellm UPSTREAM_URL"""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path

import litellm

CONFIG = """
model_list:
  - model_name: bench
    litellm_params: {model: openai/bench, api_base: "%s", api_key: none}
general_settings: {dangerously_permit_weak_or_unset_master_key: true}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "proxy.yaml")
        config.write_text(CONFIG % sys.argv[1])
        sys.argv = ["litellm", "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        print(port, flush=True)
        litellm.run_server()
