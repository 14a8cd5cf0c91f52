# Sourced by the checks: servers of `$towline` on this machine, which end with the script that started them, and a folder for their logs.

scratch=$(mktemp -d)
servers=()
stop() {
  local pid
  for pid in "${servers[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${servers[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start_server NAME OPTION... sets `address`
start_server() {
  local name=$1 tenths
  shift
  # Should this script be killed outright, the server ends with it.
  setpriv --pdeathsig TERM "$towline" serve --listen 127.0.0.1:0 --ready-file "$scratch/$name.ready" "$@" 2>"$scratch/$name.log" &
  servers+=($!)
  for ((tenths = 0; tenths < 300; tenths++)); do
    [[ ! -s $scratch/$name.ready ]] || break
    kill -0 "${servers[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  [[ -s $scratch/$name.ready ]] || { cat "$scratch/$name.log" >&2; exit 1; }
  address=$(<"$scratch/$name.ready")
}
