# The world outside of Segue: every call leaves its marks in a log that Segue does not know.
# usage: tool.sh SORT NAME HUNDREDTHS
sort=$1 name=$2 done=true
# Looking at a piece of work is not the work.
case $sort in look) label="?$name" ;; *) label=$name ;; esac
mark() { echo "$1 $SEGUE_KEY $sort $label" >> log; }

mark START
case $sort in
  flaky)
    grep -qF "FAIL $SEGUE_KEY " log || { mark FAIL; echo "not yet" >&2; exit 1; } ;;
  bad)
    mark FAIL; echo "never" >&2; exit 1 ;;
  look)
    grep -q "^END [^ ]* [^ ]* $name\$" log || done=false ;;
  poll)
    grep -q "^END [^ ]* poll $name\$" log || done=false ;;
esac
sleep "0.0$3"
mark END
echo "{\"name\":\"$name\",\"done\":$done}"
