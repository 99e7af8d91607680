#!/usr/bin/env bash
# The main job of Terrane on real data: import, query, kill, recover, and a map of an answer.
# `make demo` builds the programs and runs this. Everything goes to target/demo.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
target="${CARGO_TARGET_DIR:-target}"
[[ "$target" = /* ]] || target="$root/$target"
terrane="$target/release/terrane"
lab="$target/release/terrane-lab"
work="$target/demo"
store="$work/rides.terrane"

# Keys that have to be acknowledged before the writer is killed.
acknowledged_min=20000
# Places in San Francisco.
ferry_building=-122.3937,37.7955
downtown=-122.4120,37.7830,-122.4000,37.7920

for program in "$terrane" "$lab"; do
  [[ -x "$program" ]] || { echo "demo: $program is missing; run: make demo" >&2; exit 1; }
done
rm -rf "$work"
mkdir -p "$work"

writer=
cleanup() { if [[ -n "$writer" ]]; then kill -9 "$writer" 2>/dev/null || true; fi; }
trap cleanup EXIT

title() { printf '\n== %s\n' "$*"; }
# Prints a command as a person would type it.
show() {
  local shown="$*"
  shown="${shown//$work\//}"
  printf '$ %s\n' "${shown//$root\//}"
}
run() {
  show terrane "$@"
  "$terrane" "$@"
}
fail() {
  echo "demo: FAILED: $*" >&2
  exit 1
}

title "Import 100,000 real cab rides of San Francisco"
run import "$store" rides data/sf_cab_rides.parquet --key ride_id --lon pickup_lon --lat pickup_lat

title "Window: pick-ups downtown"
run query "$store" rides --bbox "$downtown" --count
run query "$store" rides --bbox "$downtown" --limit 3 --format table

title "Circle: pick-ups within 250 m of the Ferry Building"
run query "$store" rides --circle "$ferry_building,250" --count

title "Polygon: pick-ups in the Mission District"
run query "$store" rides --within @data/sf_mission_district.wkt --count

title "Nearest: the five pick-ups nearest to the Ferry Building, and how they were found"
run query "$store" rides --nearest "$ferry_building" --k 5 --format table --explain

title "All at once: the three pick-ups in the Mission District nearest to the Ferry Building"
run query "$store" rides --within @data/sf_mission_district.wkt --nearest "$ferry_building" --k 3 --format table

title "Insert a stream of positions, and kill the writer with SIGKILL in the middle"
# An endless stream; it ends when nobody reads it any more.
positions() {
  awk 'BEGIN {
    srand(42)
    for (key = 0; ; key++)
      printf "{\"key\":%d,\"lon\":%.6f,\"lat\":%.6f,\"cab\":%d,\"speed_kmh\":%d}\n", key, \
        -122.42 + 0.05 * (rand() + rand() - 1), 37.77 + 0.04 * (rand() + rand() - 1), rand() * 537, rand() * 60
  }' 2>/dev/null
}
: > "$work/acknowledged.txt"
show "generate positions | terrane insert $store live > $work/acknowledged.txt"
"$terrane" insert "$store" live < <(positions) > "$work/acknowledged.txt" 2> "$work/insert.log" &
writer=$!
for ((round = 0; ; round++)); do
  (( $(wc -l < "$work/acknowledged.txt") < acknowledged_min )) || break
  if (( round == 1200 )) || ! kill -0 "$writer" 2>/dev/null; then
    cat "$work/insert.log" >&2
    fail "the writer did not get far enough"
  fi
  sleep 0.05
done
echo "while it writes, another process reads:"
before=$(wc -l < "$work/acknowledged.txt")
show terrane query "$store" live --count
seen=$("$terrane" query "$store" live --count)
echo "$seen"
(( seen >= before )) || fail "the reader saw $seen records, $before were acknowledged before it began"
# The shell has its own word on a killed job, as soon as it hears of the end.
{ kill -9 "$writer"; wait "$writer"; } 2>/dev/null || true
writer=
echo "killed with SIGKILL"

title "Open again: nothing that was acknowledged is missing"
# What was printed up to the last whole line was acknowledged; the kill may have cut a line.
if [[ -n "$(tail -c 1 "$work/acknowledged.txt")" ]]; then
  sed '$d' "$work/acknowledged.txt" > "$work/printed.txt"
else
  cp "$work/acknowledged.txt" "$work/printed.txt"
fi
show "terrane query $store live --format ndjson > $work/live.ndjson"
"$terrane" query "$store" live --format ndjson > "$work/live.ndjson"
sed -n 's/.*"key":\([0-9][0-9]*\).*/\1/p' "$work/live.ndjson" | LC_ALL=C sort > "$work/found.txt"
LC_ALL=C sort "$work/printed.txt" > "$work/acknowledged.sorted"
LC_ALL=C comm -23 "$work/acknowledged.sorted" "$work/found.txt" > "$work/missing.txt"
acknowledged=$(wc -l < "$work/acknowledged.sorted")
found=$(wc -l < "$work/found.txt")
missing=$(wc -l < "$work/missing.txt")
printf 'acknowledged before the kill: %d\nfound after it:               %d\nacknowledged and missing:     %d\n' \
  "$acknowledged" "$found" "$missing"
(( missing == 0 && acknowledged >= acknowledged_min )) || fail "see $work/missing.txt"
echo "(more may be found than acknowledged: they were durable, and the kill came before their keys were printed)"

title "Check every page, every invariant, and every index against the records"
run check "$store"

title "A map of an answer"
"$terrane" query "$store" rides --format ndjson > "$work/rides.ndjson"
"$terrane" query "$store" rides --within @data/sf_mission_district.wkt --format ndjson > "$work/mission.ndjson"
"$lab" map --points "$work/rides.ndjson" --highlight "$work/mission.ndjson" \
  --x pickup_lon --y pickup_lat --outline @data/sf_mission_district.wkt \
  --title "Cab rides of San Francisco, May 2008" \
  --subtitle "Pick-ups, and those within the Mission District" \
  --highlight-label "pick-ups in the Mission" --outline-label "Mission District" \
  --attribution "Rides: CRAWDAD epfl/mobility, CC BY 4.0. Polygon: US Census Bureau, Who's On First." \
  --out "$work/map.svg"
echo "map: ${work#"$root"/}/map.svg"
echo
echo "demo: all steps succeeded"
