<?php
// A counter that loses counts if two requests run at once: each writes without
// having read what the other wrote.
$file = sys_get_temp_dir() . '/count';
$count = is_file($file) ? (int) file_get_contents($file) : 0;
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
	usleep(20000);
	file_put_contents($file, ++$count);
}
if ($_SERVER['REQUEST_METHOD'] === 'DELETE') {
	file_put_contents($file, $count = 0);
}
echo "$count\n";
