#!/bin/sh
# usage: try.sh <address of the site>
# Adds fifty to the counter, all at once, without and with the queue.
for way in free turn; do
	curl -sf -X DELETE "$1/$way" >/dev/null || exit
	curl -sf -Z --parallel-immediate --parallel-max 50 -X POST "$1/$way?[1-50]" >/dev/null 2>&1 || exit
	echo "$way: 50 requests, the counter says $(curl -sf "$1/$way")"
done
