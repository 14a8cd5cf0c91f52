# Within tests/node/emulated-host: what the kernel shows.
"$1" node inspect --all
