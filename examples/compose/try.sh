#!/bin/sh
# usage: try.sh <address of the site>
# Sends fifty requests at once, each of which adds one to the counter: without
# the queue, then with it.
for way in free turn; do
	if ! curl -sf -X DELETE "$1/$way" >/dev/null ||
		! curl -sf -Z --parallel-immediate --parallel-max 50 -X POST "$1/$way?[1-50]" >/dev/null 2>&1; then
		echo "$way: $1 refused requests, or did not answer" >&2
		exit 1
	fi
	echo "$way: 50 requests, the counter says $(curl -sf "$1/$way")"
done
