#!/usr/bin/env bash
# Puts a working NVIDIA Nsight Systems 2023.4.4 (Debian's package, component non-free) into a folder, without
# installing it into the system, and checks that it profiles, imports, exports and computes statistics.
#
#   .ci/get-nsys.sh [DIR]                # default: .nsys in this repository (git ignores it)
#   .ci/get-nsys.sh [DIR] BUNDLE.txz     # also a small archive (about 43 MB) for a GPU machine without internet access
#
# The command to run is then DIR/target-linux-x64/nsys. On the other machine: unpack, run nsys/target-linux-x64/nsys.
# For Debian machines (amd64) that have internet access. About 190 MB is downloaded, about 600 MB unpacked.
# A second run finds what the first one left and only repeats the checks. Needs no root.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=$(realpath -m "${1:-$repository/.nsys}")
bundle=${2:+$(realpath -m "$2")}
version=2023.4.4.54~12.4.1-2
suite=trixie
nsys=$dir/target-linux-x64/nsys
done_mark=$dir/.complete

[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || {
    echo "get-nsys.sh: needs a Debian machine of architecture amd64" >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# apt with lists and cache of our own: the system's stay as they are, and no root is needed.
private_apt() {
    local name=$1
    shift
    mkdir -p "$work/$name/lists/partial" "$work/$name/cache/archives/partial"
    apt-get -qq -o "Dir::State::Lists=$work/$name/lists" -o "Dir::Cache=$work/$name/cache" \
        -o Debug::NoLocking=1 -o "APT::Sandbox::User=$(id -un)" "$@"
}

check() { # the nsys under $1 profiles, imports, exports and computes statistics
    local tool=$1/target-linux-x64/nsys out=$work/check
    rm -rf "$out" && mkdir "$out"
    "$tool" profile --trace=osrt --sample=none --cpuctxsw=none --output="$out/report" --export=sqlite true \
        >"$out/log" 2>&1 && test -s "$out/report.sqlite" &&
        "$tool" stats -r osrt_sum --format csv "$out/report.sqlite" >>"$out/log" 2>&1 || {
        echo "get-nsys.sh: $tool is there and does not work:" >&2
        tail -n 20 "$out/log" >&2
        return 1
    }
}

if [ ! -e "$done_mark" ]; then
    # The archive this machine already uses, with one more suite and component.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/*$') || {
        echo "get-nsys.sh: apt knows no Debian archive on this machine" >&2
        exit 1
    }
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keyring] ${mirror%/} $suite non-free" >"$work/nsys.list"
    own=(-o "Dir::Etc::SourceList=$work/nsys.list" -o Dir::Etc::SourceParts=/nonexistent)
    private_apt nsys "${own[@]}" update
    mkdir -p "$work/debs" "$work/libs"
    (cd "$work/debs" && private_apt nsys "${own[@]}" download \
        "nsight-systems=$version" "nsight-systems-target=$version")
    # Two libraries that the importer loads, from the suite of this machine: that fits its C library.
    private_apt system update
    private_apt system -y --reinstall --download-only --no-install-recommends install libssh-4 libpfm4 >/dev/null
    for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
    for deb in "$work"/system/cache/archives/*.deb; do dpkg-deb -x "$deb" "$work/libs"; done

    # nsys looks for its importer at ../host-linux-x64, which Debian's split layout hides behind links.
    rm -rf "$dir/target-linux-x64" "$dir/host-linux-x64"
    mkdir -p "$dir"
    cp -a "$work/root/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64" "$dir/"
    cp -a "$work/root/usr/lib/nsight-systems/host-linux-x64" "$dir/"
    host=$dir/host-linux-x64
    rm -f "$host"/libssh.so*
    find "$work/libs" \( -name 'libssh.so.4' -o -name 'libpfm.so.4' \) -exec cp -L {} "$host/" \;
    # What those two need and this machine lacks came along; what it has is left alone.
    find "$work/libs" -name 'lib*.so.*' -printf '%f %p\n' | while read -r name path; do
        [ -e "$host/$name" ] || ldconfig -p 2>/dev/null | grep -q "[[:space:]]$name " || cp -L "$path" "$host/$name"
    done
    ln -sf libssh.so.4 "$host/libssh.so"
    cp "$dir"/target-linux-x64/python/lib/*.py "$host/python/lib/" # `nsys stats` imports nsysstats from here
    check "$dir"
    touch "$done_mark"
else
    check "$dir"
fi
"$nsys" --version

if [ -n "$bundle" ]; then
    small=$work/nsys-bundle/nsys
    mkdir -p "$small/target-linux-x64" "$small/host-linux-x64"
    (cd "$dir/target-linux-x64" && cp -a nsys nsys-launcher launcher libLauncher64.so libToolsInjection64.so \
        libToolsInjectionProxy64.so libToolsInjectionMemoryAllocator.so libcupti.so.12.4 libnvlog.so \
        libsqlite3.so.0 CudaGpuInfoDumper nvlog.config.template reports rules python sqlite3 \
        "$small/target-linux-x64/")
    cd "$dir/host-linux-x64"
    {
        printf '%s\n' QdstrmImporter libexporter.so libnvlog.so libparquet.so.500 libarrow.so.500 \
            libssh.so.4 libpfm.so.4 libCommonNsysServer.so libNsysServerProto.so
        LD_LIBRARY_PATH=. ldd QdstrmImporter libexporter.so |
            awk '/host-linux/ {n = split($3, p, "/"); print p[n]}'
    } | sort -u | while read -r name; do cp -L "$name" "$small/host-linux-x64/$name"; done
    ln -sf libssh.so.4 "$small/host-linux-x64/libssh.so"
    cp -a nvlog.config.template python reports rules sqlite3 "$small/host-linux-x64/"
    check "$small"
    mkdir -p "$(dirname "$bundle")"
    tar -C "$work/nsys-bundle" -I 'xz -T0 -3' -cf "$bundle" nsys
    ls -l "$bundle"
fi
