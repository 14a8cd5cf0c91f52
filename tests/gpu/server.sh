# shellcheck shell=bash
# A server for the scripts beside this file, which source it: `serve` starts one and leaves its address in $scratch/ready, a folder of
# theirs; `stop` ends it. They define `die`.

server=

stop() {
  [[ -z $server ]] || { kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  server=
}

# serve TOWLINE LOG OPTION...
serve() {
  local towline=$1 log=$2 tenths
  shift 2
  rm -f "$scratch/ready"
  "$towline" serve --ready-file "$scratch/ready" "$@" 2>"$log" &
  server=$!
  for ((tenths = 0; tenths < 300; tenths++)); do
    [[ ! -s $scratch/ready ]] || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log" >&2
  die "the server did not start"
}
