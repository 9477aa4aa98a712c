<?php
$end = hrtime(true) + (int) $_GET['ns'];
while (hrtime(true) < $end);
echo 'ok';
