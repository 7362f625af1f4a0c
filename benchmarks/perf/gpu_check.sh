#!/usr/bin/env bash
# Is all well on a GPU?  The CUDA tests, the decode and the step benchmark, and a self-play run of 100 steps with
# SmolLM2, each within a budget of its own, together within eight minutes.  Exit code 1 when a part fails.
#
#   benchmarks/perf/gpu_check.sh                            # needs one CUDA device
#   benchmarks/perf/gpu_check.sh --device cpu --steps 1     # the same parts, small, to try the script itself
#
#   --device cuda|cpu    --steps N    --policy NAME or folder, of the self-play run    PYTHON=... another interpreter
set -u
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-.venv/bin/python}
device=cuda steps=100 policy=smollm2 patience=1

while [ $# -gt 0 ]; do
    case $1 in
        --device | --steps | --policy)
            [ $# -ge 2 ] || { echo "gpu_check: $1 needs a value" >&2; exit 2; }
            declare "${1#--}=$2"
            shift 2
            ;;
        *) echo "gpu_check: unknown option $1; known: --device, --steps, --policy" >&2; exit 2 ;;
    esac
done
case $device in
    cuda)
        if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
            echo "gpu_check: torch sees no CUDA device; --device cpu --steps 1 tries the script without one" >&2
            exit 1
        fi
        decode=(--model smollm2 --dtype bfloat16 --batches 16,64 --contexts 256,1024 --repeats 2)
        step=(--model smollm2 --dtype bfloat16 --repeats 3)
        ;;
    cpu)
        patience=5  # a processor may be slow and busy, and the budgets are a GPU's
        decode=(--model small --batches 4 --contexts 64 --repeats 1)
        step=(--model small --dtype float32 --questions 2 --attempts 2 --searches 1 --written 4 --no-warm --repeats 1)
        ;;
    *) echo "gpu_check: --device must be cuda or cpu, got $device" >&2; exit 2 ;;
esac

out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT
failed=0

# part NAME SECONDS COMMAND...: run it within so many seconds, show what it prints, and say how it went.
part() {
    local name=$1 budget=$(($2 * patience)) started=$SECONDS code
    shift 2
    echo "== $name (at most $budget s)"
    timeout --kill-after=5 "$budget" "$@" 2>&1 </dev/null | tail -n 30
    code=${PIPESTATUS[0]}
    case $code in
        0) echo "== $name: passed in $((SECONDS - started)) s" ;;
        124 | 137) echo "== $name: FAILED, not done after $budget s"; failed=1 ;;
        *) echo "== $name: FAILED with exit code $code after $((SECONDS - started)) s"; failed=1 ;;
    esac
}

part tests 80 env SESA_TEST_DEVICE="$device" "$python" -m pytest -q -m cuda tests/agents/test_cuda.py
part decode 80 "$python" -m benchmarks.perf.generation --device "$device" "${decode[@]}"
part step 60 "$python" -m benchmarks.perf.step --device "$device" --no-peer "${step[@]}"
part self-play 250 "$python" -m benchmarks train --out "$out/run" \
    "policy=$policy" "steps=$steps" "model.device=$device" "checkpoint_every=$steps" \
    model.train=full solver.lr=1e-6 challenger.lr=1e-6 model.max_new_tokens=12 \
    rounds=4 game.attempts=4 game.solver_turns=2 game.challenger_turns=3
exit $failed
