#!/bin/sh
# After installing and after an upgrade. dpkg says `configure` and the version before, rpm how many versions there are.
set -e
systemd-sysusers towline.conf
# AppArmor before version 4 does not know the rule, and would then refuse the file at each boot.
profile=/usr/share/towline/apparmor
if [ -f $profile ] && apparmor_parser --skip-kernel-load --skip-cache $profile >/dev/null 2>&1; then
  install -m 644 $profile /etc/apparmor.d/towline
  [ ! -d /sys/kernel/security/apparmor ] || apparmor_parser --replace --write-cache /etc/apparmor.d/towline || true
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1 $2" in
  "configure "?* | "2 "*)
    # Its sessions end in order; programs get an error and new ones find the new server.
    systemctl try-restart towline.service || true
    ;;
esac
