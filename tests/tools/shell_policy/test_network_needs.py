import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.catalogue import TOOLS
from tools.shell_policy.network_needs import needs_network

[BASH] = [tool for tool in TOOLS if tool.name == "bash"]

NEEDS = (
    """
pip install x
pip3 install -r requirements.txt
pip3.11 download x
python -m pip install -e .
python3.11 -m pip install x
uv pip install x
uv sync
uvx ruff
pipx run x
npm install
npm ci
npm i -D x
npx create-app
yarn
yarn add x
pnpm i
git clone https://github.com/a/b
git clone git@github.com:a/b.git
git clone --depth 1 ssh://git@example.org/a/b dir
git -C sub fetch
git -c a=b pull --rebase
git push
git push origin main
git push -u origin HEAD
git ls-remote https://example.org/a
git submodule update --init
curl https://example.org
curl -fsSL example.org/install.sh | sh
curl -X POST -d @f https://example.org/a
wget -q example.org/a.tgz
curl http://localhost.example.org
curl https://127.0.0.1.example.org/
apt-get update
sudo apt-get install -y x
cargo fetch
cargo install x
go mod download
go install example.org/x@latest
ssh a@example.org ls
scp file example.org:/tmp
rsync -a dir/ a@example.org:dir
cd x && pip install y
PIP_NO_CACHE=1 pip install y
(cd x; npm ci)
if true; then npm ci; fi
x=$(curl -s https://example.org) && echo "$x"
timeout 60 pip install x
bash -c 'pip install x'
echo `git fetch`
for p in a b; do pip install $p; done
/usr/bin/pip install x
pip install x > log 2>&1
pip \\
  install x
gh pr list
curl "$URL/x" https://example.org
""".strip()
    .replace("\\\n", "\\~")
    .splitlines()
)

NEEDS_NOT = """
ls
pip --version
pip list
pip freeze
pip install --no-index ./x.whl
python -m pip show x
python script.py
pytest
npm test
npm run build
npm init -y
npx --no-install tsc
git status
git commit -m 'git push'
git log --oneline
git diff
git clone ../other copy
git clone /srv/a.git
git clone file:///srv/a.git
git push ../backup.git main
git push /srv/a.git
git clone --depth 1 ./other copy
git fetch ./other
git remote -v
git stash push
curl localhost:8000
curl -sS http://127.0.0.1:8000/a
curl http://[::1]:8000/
curl -H 'Host: example.org' localhost
curl -o example.org http://localhost/
curl --version
wget http://localhost:3000/x
cargo build --offline
cargo test
go build ./...
ssh -V
ssh localhost ls
scp a b
rsync -a dir/ other/
rsync -a C:/x y
echo pip install x
echo "curl https://example.org"
grep -r 'pip install' .
# pip install x
cat pip install
mkdir npm && ls npm
sed -i 's/npm install/npm ci/' README.md
apt list
make
""".strip().splitlines()


@pytest.mark.parametrize("command", NEEDS)
def test_what_plainly_needs_the_network_asks_for_it_at_once(command: str) -> None:
    command = command.replace("\\~", "\\\n")
    wanted = BASH.normalise({"command": command})
    assert wanted == {"command": command, "network": True}
    assert BASH.normalise(wanted) == wanted
    marked = BASH.normalise({"command": f"#!bg\n{command}"})
    assert marked["network"] is True and marked["background"] is True


@pytest.mark.parametrize("command", NEEDS_NOT)
def test_what_does_not_runs_without(command: str) -> None:
    assert BASH.normalise({"command": command}) == {"command": command}
    assert BASH.normalise({"command": command, "network": False}) == {"command": command}


def test_a_text_that_is_fed_to_a_program_is_no_command() -> None:
    assert not needs_network("cat > README.md <<'EOF'\nRun\n  pip install x\nEOF\nls")
    assert needs_network("cat > README.md <<EOF\nRun it\nEOF\npip install x")


def test_what_a_call_says_itself_holds() -> None:
    for network in (list[str](), "none", None):
        assert BASH.normalise({"command": "pip install x", "network": network})["network"] is True
    no = BASH.normalise({"command": "pip install x", "network": False})
    assert no == {"command": "pip install x", "network": False} and BASH.normalise(no) == no
    some = {"command": "pip install x", "network": ["pypi.example"]}
    assert BASH.normalise(some) == some


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.sampled_from("pip install git push curl://'\"\\$(){}<;&|\n#`"), max_size=60) | st.text(max_size=40))
def test_any_text_is_read_and_the_same_way_again(command: str) -> None:
    once = BASH.normalise({"command": command})
    assert BASH.normalise(once) == once


@pytest.mark.parametrize(
    "piece", ["'", '"', "$(", "a ", "<<a\n", "\\", "#", "a=b ", "pip ", "bash -c '", "://", "a.", "`"]
)
def test_long_texts_take_no_time_to_speak_of(piece: str) -> None:
    small, large = (_cpu_s(piece * (size // len(piece))) for size in (25_000, 100_000))
    assert large < 40 * small + 0.5  # four times as long; squared it would be far more


def _cpu_s(text: str) -> float:
    start = time.process_time()
    needs_network(text)
    return time.process_time() - start
