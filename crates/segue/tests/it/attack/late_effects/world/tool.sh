# The world outside of Segue: a command that writes what it does into a ledger that Segue does not know.
# usage: tool.sh write|undo|fail NAME SECONDS_BEFORE SECONDS_AFTER
kind=$1 name=$2
mark() { echo "$1 $$ $name" >> ledger; }

mark START
sleep "$3"
case $kind in
  write) mark EFFECT ;;
  undo) mark UNDO ;;
  fail) mark FAIL; echo "it fails" >&2; exit 1 ;;
esac
sleep "$4"
mark END
echo "{\"name\":\"$name\",\"token\":\"token of $name\"}"
