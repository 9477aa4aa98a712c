<?php
$begin = hrtime(true);
$end = $begin + (int) $_GET['ns'];
$page = str_repeat("<p>All work and no play.</p>\n", intdiv((int) $_GET['bytes'], 29) + 1);
while (hrtime(true) < $end);
echo $page;
file_put_contents(__DIR__ . '/turns', pack('PP', $begin, hrtime(true)), FILE_APPEND);
