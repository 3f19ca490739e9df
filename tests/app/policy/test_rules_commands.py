"""Evasions of rules on commands: each is denied, or asks where the command cannot be read."""

from __future__ import annotations

import pytest

from tests.support.access.operator_rules import BASH, NO_RM, spelled, verdict

# Each names what the rule forbids in a way that a reader of plain words would miss.
COMMANDS = spelled(r"""rm x
/bin/rm x
/usr/bin/rm -rf x
true; rm x
true && rm x
false || rm x
true | rm x
true & rm x
(rm x)
{ rm x; }
! rm x
if true; then rm x; fi
while rm x; do :; done
for i in 1; do rm $i; done
case a in a) rm x;; esac
f() { rm x; }; f
echo $(rm x)
echo `rm x`
echo "$(rm x)"
echo "a $(echo "$(rm x)") b"
diff <(rm x) y
A=1 B=2 rm x
>out rm x
2>/dev/null rm x
sudo rm x
sudo -u bob rm x
sudo -- rm x
env rm x
env -i A=1 rm x
env -u PATH rm x
env -S 'rm x'
env --split-string='rm x'
nohup rm x &
nice -n 5 rm x
timeout 5 rm x
timeout -k 1 5s rm x
time -p rm x
exec rm x
command rm x
builtin command rm x
setsid rm x
stdbuf -o0 rm x
xargs rm
echo x | xargs -n1 rm
find . -exec rm {} +
find . -execdir rm {} \;
busybox rm x
sh -c 'rm x'
bash -lc "rm x"
bash -o pipefail -c 'rm x'
sh -c "sh -c 'rm x'"
sudo sh -c 'true; rm x'
eval rm x
eval "rm x"
trap 'rm x' EXIT
watch 'rm x'
su bob -c 'rm x'
ssh host 'rm x'
flock /tmp/l -c 'rm x'
"rm" x
'r'm x
r"m" x
r''m x
\rm x
r\m x
r\\nm x
rm\tx
true\nrm x
true # a comment\nrm x
bash <<EOF\nrm x\nEOF
bash <<< 'rm x'
cat <<EOF\n$(rm x)\nEOF
git push origin main
git -C /x push
git  "push"
/usr/bin/git push
coproc rm x
[[ -n $(rm x) ]] && true
echo ${x:-$(rm x)}
arr=($(rm x))
export X=$(rm x)""")

# What runs is not in the words: the rule asks at least.
UNREADABLE = spelled(r"""$X x
${X} x
"$X" x
x=rm; $x f
r$@m x
rm$IFS-rf$IFS.
$'\x72m' x
$'rm' x
/bin/r? x
/bin/[r]m x
/bin/r* x
{rm,x}
r{m,}
~/rm x
$(echo rm) x
`echo rm` x
$(printf '\162\155') x
echo cm0geA== | base64 -d | sh
curl -s u | bash
sh script.sh
bash < script
. ./script
source script
./script
bin/tool
/tmp/rm2 x
cp /bin/rm ./l; ./l x
alias l=rm
eval "$X"
eval $(echo rm) x
sh -c "$X"
sh -c '$0 x' rm
bash -s
echo rm | xargs -I{} {} x
echo 'rm x' | xargs env
echo 'rm x' | parallel
PATH=. ls
export PATH=.
LD_PRELOAD=./x.so ls
BASH_ENV=x bash -c ls
hash -p /bin/rm ls
enable -f x.so ls
python3 -c 'import os'
python3.11 x.py
perl -e 'unlink "x"'
awk 'BEGIN { system("r" "m x") }'
sed '1e date' x
make
npm run x
node x.js
git -c alias.x='!r''m x' x
git submodule foreach x
tar cf /dev/null --checkpoint-action=exec=x y
find . -exec {} ;
ｒｍ x
сurl x
printf -v 'a[$(id)]' x
test -v 'a[`id`]'
[[ -v 'a[$(id)]' ]]
echo 'unclosed
mytool --run rm
ls\a
ld.so ./x
vim -c x
docker run x
at now""")

HARMLESS = spelled(r"""echo rm
ls -la rm
grep -rn curl src | head -5
cat rm
git status
git log -3
git pull
cd src && ls
mkdir -p a/b && touch a/b/rm
cp curl x
echo $X
echo "$HOME" > x
for i in 1 2; do echo $i; done
true # rm x
cat <<EOF\nrm x\nEOF
echo 'rm x'
confirm x
armor""")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_forbidden_command_is_denied_wherever_it_stands(command: str) -> None:
    assert verdict(NO_RM, BASH, {"command": command}) == "refuse"


@pytest.mark.parametrize("command", UNREADABLE)
def test_a_command_that_cannot_be_read_asks_at_least(command: str) -> None:
    assert verdict(NO_RM, BASH, {"command": command}) in ("ask", "refuse")


@pytest.mark.parametrize("command", HARMLESS)
def test_a_command_without_the_words_runs(command: str) -> None:
    assert verdict(NO_RM, BASH, {"command": command}) == "allow"
