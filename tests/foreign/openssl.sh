#!/usr/bin/env bash
# openssl.sh DIR: certificates checked with openssl and coreutils (and jq, xxd), by the steps of docs/certificate-format.md and
# docs/audit-log.md. DIR/cases/*/{envelope.json,proof.tlog}, DIR/trust.txt; prints "<case> ok" or "<case> bad".
# What it takes is processes, so each step is one for all cases, but for the two signatures of each.
set -euo pipefail
export OPENSSL_CONF=/dev/null # nothing of it is needed, and reading it is half of a start
shopt -s patsub_replacement # bash 5.2
dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$dir/cases"
names=(*)
declare -A bad
refuse() { bad[$1]=1; }
unhex() { printf "${1//??/\\x&}"; } # HEX: as bytes
alphabet=ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/
base64_of_32() { # HEX of 32 bytes, into $encoded
  local i n padded=${1}00
  encoded=
  for ((i = 0; i < 66; i += 6)); do
    n=$((16#${padded:i:6}))
    encoded+=${alphabet:n>>18:1}${alphabet:n>>12&63:1}${alphabet:n>>6&63:1}${alphabet:n&63:1}
  done
  encoded=${encoded:0:43}=
}
unbase64() { base64 -d | xxd -p -c "$1"; } # BYTES: lines of base64 to lines of hex, of so many bytes each

# The trusted keys, as openssl wants them.
origin=$(sed -n 's/^log \([^+]*\)+.*/\1/p' ../trust.txt)
log_key=$(sed -n 's/^log [^+]*+[^+]*+//p' ../trust.txt | unbase64 33)
key_hint=$(sed -n 's/^log [^+]*+\([^+]*\)+.*/\1/p' ../trust.txt)
spki=$(sed -n 's/^record \([0-9a-f]*\).*/\1/p' ../trust.txt)
unhex "302a300506032b6570032100${log_key:2}" >"$work/log.der"
unhex "$spki" >"$work/record.der"
key_id=$(sha256sum <"$work/record.der" | cut -c1-64)
spki64=$(base64 -w0 <"$work/record.der")

# Envelopes: pre-authentication encoding and signature.
envelopes=("${names[@]/%//envelope.json}")
mapfile -t payloads < <(jq -r '.payload | @base64d' "${envelopes[@]}")
mapfile -t types < <(jq -r '.payloadType' "${envelopes[@]}")
mapfile -t ids < <(jq -r '.signatures[0].keyid' "${envelopes[@]}")
mapfile -t sigs64 < <(jq -r '.signatures[0].sig' "${envelopes[@]}")
mapfile -t sigs < <(printf '%s\n' "${sigs64[@]}" | unbase64 64)
for i in "${!names[@]}"; do
  [ "${ids[i]}" = "$key_id" ] || refuse "${names[i]}"
  printf 'DSSEv1 %d %s %d %s' ${#types[i]} "${types[i]}" ${#payloads[i]} "${payloads[i]}" >"$work/${names[i]}.pae"
  unhex "${sigs[i]}" >"$work/${names[i]}.sig"
done

# Leaves and their hashes.
mapfile -t digests < <(cd "$work" && sha256sum "${names[@]/%/.pae}")
for i in "${!names[@]}"; do
  base64_of_32 "${digests[i]%% *}"
  printf '\0{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_256","digest":"%s"},"signature":{"content":"%s","verifier":{"keyDetails":"PKIX_ED25519","publicKey":{"rawBytes":"%s"}}}}}}' \
    "$encoded" "${sigs64[i]}" "$spki64" >"$work/${names[i]}.leaf"
done
mapfile -t r < <(cd "$work" && sha256sum "${names[@]/%/.leaf}")

# Proof files: index, hashes, signed head.
hashes64=() roots64=() lines64=()
for i in "${!names[@]}"; do
  mapfile -t lines <"${names[i]}/proof.tlog"
  [ "${lines[0]}" = c2sp.org/tlog-proof@v1 ] || refuse "${names[i]}"
  fn[i]=${lines[1]#index }
  n=2
  while [ -n "${lines[n]}" ]; do hashes64+=("${lines[n]}") n=$((n + 1)); done
  count[i]=$((n - 2))
  printf '%s\n' "${lines[@]:n+1:3}" >"$work/${names[i]}.text"
  size=${lines[n+2]}
  { [ "${lines[n+1]}" = "$origin" ] && [ "${lines[n+5]% *}" = "— $origin" ] &&
    [[ $size =~ ^[1-9][0-9]{0,17}$ && ${fn[i]} =~ ^(0|[1-9][0-9]{0,17})$ ]] && ((fn[i] < size)); } || { refuse "${names[i]}"; fn[i]=0; }
  sn[i]=$((size - 1))
  roots64+=("${lines[n+3]}") lines64+=("${lines[n+5]##* }")
done
mapfile -t hashes < <(printf '%s\n' "${hashes64[@]}" | unbase64 32)
mapfile -t roots < <(printf '%s\n' "${roots64[@]}" | unbase64 32)
mapfile -t signed < <(printf '%s\n' "${lines64[@]}" | unbase64 68)
next=0
for i in "${!names[@]}"; do
  [ "${signed[i]:0:8}" = "$key_hint" ] || refuse "${names[i]}"
  unhex "${signed[i]:8}" >"$work/${names[i]}.headsig"
  first[i]=$next next=$((next + count[i]))
done

# Both signatures of every case.
verify() { openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey "$1" -in "$2" -sigfile "$3" >/dev/null 2>&1; }
refused() {
  local c
  for c; do
    { verify "$work/record.der" "$work/$c.pae" "$work/$c.sig" && verify "$work/log.der" "$work/$c.text" "$work/$c.headsig"; } || echo "$c"
  done
}
half=$((${#names[@]} / 2))
while read -r c; do refuse "$c"; done < <(refused "${names[@]:0:half}" & refused "${names[@]:half}"; wait)

# Inclusion (RFC 9162, 2.1.3.2), one level of all proofs at a time.
for ((level = 0; ; level++)); do
  left=() at=()
  for i in "${!names[@]}"; do
    ((level < count[i])) || continue
    if ((sn[i] == 0)); then refuse "${names[i]}"; continue; fi
    p=${hashes[first[i] + level]} here=${r[i]%% *}
    if ((fn[i] % 2 == 1 || fn[i] == sn[i])); then
      unhex "01$p$here" >"$work/$i.node"
      while ((fn[i] % 2 == 0 && fn[i] != 0)); do fn[i]=$((fn[i] / 2)) sn[i]=$((sn[i] / 2)); done
    else
      unhex "01$here$p" >"$work/$i.node"
    fi
    fn[i]=$((fn[i] / 2)) sn[i]=$((sn[i] / 2))
    left+=("$i.node") at+=("$i")
  done
  [ ${#left[@]} -gt 0 ] || break
  mapfile -t nodes < <(cd "$work" && sha256sum "${left[@]}")
  for j in "${!at[@]}"; do r[at[j]]=${nodes[j]}; done
done
for i in "${!names[@]}"; do
  { ((sn[i] == 0)) && [ "${r[i]%% *}" = "${roots[i]}" ]; } || refuse "${names[i]}"
  if [ -n "${bad[${names[i]}]-}" ]; then echo "${names[i]} bad"; else echo "${names[i]} ok"; fi
done
