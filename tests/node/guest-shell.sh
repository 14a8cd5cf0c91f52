# Within tests/node/emulated-host --shell: runs what tests/node/ask sends, until it sends `exit`.
port=/dev/virtio-ports/org.towline.test.shell
exec 3<>"$port"
echo 'guest-shell: ready'
while :; do
  # Nobody is connected: a port reads as ended then.
  read -r line <&3 || { sleep 0.2; continue; }
  [[ $line != exit ]] || break
  output=$(bash -c "$(base64 -d <<<"$line")" 2>&1)
  status=$?
  printf '%s %s\n' "$status" "$(base64 -w 0 <<<"$output")" >&3
done
