#!/usr/bin/env bash
# openssl.sh DIR: certificates checked with openssl and coreutils (and jq, xxd), by the steps of docs/certificate-format.md and
# docs/audit-log.md. DIR/cases/*/{envelope.json,proof.tlog}, DIR/trust.txt; prints "<case> ok" or "<case> bad".
# One process hashes the same step of all cases at once.
set -euo pipefail
dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$dir/cases"
declare -A bad
refuse() { bad[$1]=1; }
unhex() { # HEX: as bytes
  local hex=$1 escaped=
  while [ -n "$hex" ]; do escaped+="\\x${hex:0:2}" hex=${hex:2}; done
  printf "$escaped"
}

# The trusted keys, as openssl wants them.
origin=$(sed -n 's/^log \([^+]*\)+.*/\1/p' ../trust.txt)
log_key=$(sed -n 's/^log [^+]*+[^+]*+//p' ../trust.txt | base64 -d | tail -c 32 | xxd -p -c 32)
key_hint=$(sed -n 's/^log [^+]*+\([^+]*\)+.*/\1/p' ../trust.txt)
unhex "302a300506032b6570032100$log_key" >"$work/log.der"
spki=$(sed -n 's/^record \([0-9a-f]*\).*/\1/p' ../trust.txt)
unhex "$spki" >"$work/record.der"
key_id=$(sha256sum <"$work/record.der" | cut -c1-64)
spki64=$(base64 -w0 <"$work/record.der")

# Envelopes: payload, signature, PAE.
while IFS=$'\t' read -r file payload type id sig; do
  c=${file%%/*}
  [ "$id" = "$key_id" ] || refuse "$c"
  base64 -d <<<"$payload" >"$work/$c.payload" 2>/dev/null || refuse "$c"
  base64 -d <<<"$sig" >"$work/$c.sig" 2>/dev/null || refuse "$c"
  { printf 'DSSEv1 %d %s %d ' ${#type} "$type" "$(stat -c %s "$work/$c.payload")"; cat "$work/$c.payload"; } >"$work/$c.pae"
  sig64[10#$c]=$sig
done < <(jq -r '[input_filename, .payload, .payloadType, .signatures[0].keyid, .signatures[0].sig] | @tsv' ./*/envelope.json | sed 's|^\./||')

# Leaves and their hashes.
while read -r digest file; do
  c=${file##*/} c=${c%.pae}
  digest64=$(unhex "$digest" | base64 -w0)
  printf '\0{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_256","digest":"%s"},"signature":{"content":"%s","verifier":{"keyDetails":"PKIX_ED25519","publicKey":{"rawBytes":"%s"}}}}}}' \
    "$digest64" "${sig64[10#$c]}" "$spki64" >"$work/$c.leaf"
done < <(sha256sum "$work"/*.pae)
while read -r hash file; do
  c=${file##*/} r[10#${c%.leaf}]=$hash
done < <(sha256sum "$work"/*.leaf)

# Proof files: index, hashes, signed head.
for c in *; do
  i=$((10#$c))
  mapfile -t lines <"$c/proof.tlog"
  [ "${lines[0]}" = c2sp.org/tlog-proof@v1 ] || refuse "$c"
  fn[i]=${lines[1]#index }
  n=2
  while [ -n "${lines[n]-}" ]; do n=$((n + 1)); done
  hashes[i]=$(printf '%s\n' "${lines[@]:2:n-2}" | base64 -d 2>/dev/null | xxd -p -c 32 | tr '\n' ' ') || refuse "$c"
  printf '%s\n' "${lines[@]:n+1:3}" >"$work/$c.text"
  [ "${lines[n+1]}" = "$origin" ] || refuse "$c"
  size=${lines[n+2]}
  { [[ $size =~ ^[1-9][0-9]{0,17}$ ]] && [[ ${fn[i]} =~ ^(0|[1-9][0-9]{0,17})$ ]]; } || { refuse "$c"; size=1 fn[i]=0; }
  ((fn[i] < size)) || refuse "$c"
  sn[i]=$((size - 1))
  root[i]=$(base64 -d <<<"${lines[n+3]}" 2>/dev/null | xxd -p -c 32) || refuse "$c"
  line=${lines[n+5]}
  raw=$(base64 -d <<<"${line##* }" 2>/dev/null | xxd -p -c 100) || refuse "$c"
  { [ "${line% *}" = "— $origin" ] && [ "${raw:0:8}" = "$key_hint" ] && [ ${#raw} = 136 ]; } || refuse "$c"
  unhex "${raw:8}" >"$work/$c.headsig"
done

# Both signatures of every case.
verify() { openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey "$1" -in "$2" -sigfile "$3" >/dev/null 2>&1; }
for c in *; do
  { verify "$work/record.der" "$work/$c.pae" "$work/$c.sig" && verify "$work/log.der" "$work/$c.text" "$work/$c.headsig"; } || refuse "$c"
done

# Inclusion (RFC 9162, 2.1.3.2), one level of all proofs at a time.
while :; do
  rm -f "$work"/*.node
  for c in *; do
    i=$((10#$c))
    [ -n "${hashes[i]}" ] || continue
    p=${hashes[i]%% *} hashes[i]=${hashes[i]#* }
    if ((sn[i] == 0)); then refuse "$c" ; hashes[i]=; continue; fi
    if ((fn[i] % 2 == 1 || fn[i] == sn[i])); then
      unhex "01$p${r[i]}" >"$work/$c.node"
      while ((fn[i] % 2 == 0 && fn[i] != 0)); do fn[i]=$((fn[i] / 2)) sn[i]=$((sn[i] / 2)); done
    else
      unhex "01${r[i]}$p" >"$work/$c.node"
    fi
    fn[i]=$((fn[i] / 2)) sn[i]=$((sn[i] / 2))
  done
  compgen -G "$work/*.node" >/dev/null || break
  while read -r hash file; do
    c=${file##*/} r[10#${c%.node}]=$hash
  done < <(sha256sum "$work"/*.node)
done
for c in *; do
  i=$((10#$c))
  { ((sn[i] == 0)) && [ "${r[i]}" = "${root[i]}" ]; } || refuse "$c"
  if [ -n "${bad[$c]-}" ]; then echo "$c bad"; else echo "$c ok"; fi
done
