<?php
$begin = hrtime(true);
$end = $begin + (int) $_GET['ns'];
while (hrtime(true) < $end);
echo 'ok';
file_put_contents(__DIR__ . '/hits', pack('PP', $begin, hrtime(true)), FILE_APPEND);
