#!/usr/bin/env bash
# Fetches NVIDIA's real user-space driver (Debian, component non-free) into target/real-driver,
# without installing it: tests lay it over the library folder in a mount namespace of their own.
set -eu
cd "$(dirname "$0")/.."
folder=$PWD/target/real-driver
[ -e "$folder/lib/libcuda.so.1" ] && exit 0
mkdir -p "$folder/apt/lists/partial" "$folder/debs" "$folder/lib"
# The machine's own mirror with the non-free component, in a private list.
{
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | grep -E '^deb ' || true
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -e "$file" ] || continue
        awk '/^URIs:/ {uri=$2} /^Suites:/ {for (i=2;i<=NF;i++) print "deb", uri, $i, "main"}' "$file"
    done
} | awk '$1=="deb" {at=2; if ($2 ~ /^\[/) while ($(at) !~ /\]$/) at++; if ($2 ~ /^\[/) at++; print "deb [trusted=yes]", $at, $(at+1), "main contrib non-free non-free-firmware"}' |
    sort -u >"$folder/apt/sources.list"
apt=(-o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o "Dir::Etc::sourceparts=/dev/null" -o "Dir::State::lists=$folder/apt/lists" -o "APT::Sandbox::User=root")
apt-get "${apt[@]}" update -qq
(cd "$folder/debs" && apt-get "${apt[@]}" download -qq libnvidia-ml1 libcuda1)
for deb in "$folder"/debs/*.deb; do dpkg -x "$deb" "$folder/root"; done
# The package links these names in its install script.
for library in libnvidia-ml.so.1 libcuda.so.1; do
    real=$(find "$folder/root" -name "${library%.1}.*" -type f | head -1)
    cp "$real" "$folder/lib/$library"
done
