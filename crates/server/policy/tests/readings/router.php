<?php
// Answers with the paths that programs in PHP read, each as a line of hexadecimal digits.
$paths = [$_SERVER["SCRIPT_NAME"] . ($_SERVER["PATH_INFO"] ?? "")];
$parsed = parse_url($_SERVER["REQUEST_URI"], PHP_URL_PATH);
if (is_string($parsed)) {
    $paths[] = rawurldecode($parsed);
}
foreach ($paths as $path) {
    echo bin2hex($path), "\n";
}
