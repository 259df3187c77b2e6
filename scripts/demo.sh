#!/usr/bin/env bash
# The main job from raw text to a trained, evaluated and fine-tuned model, small enough for two cores and eight minutes:
#   bash scripts/demo.sh [FOLDER]        everything goes into FOLDER (default: demo/ at the repository's root)
# Run again, it goes on where it stopped. Delete the folder to start over. Nothing is downloaded but the requirements.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-$root/demo}
[[ $out == /* ]] || out=$PWD/$out
marker=$out/.made-by-demo
if [ -n "$(ls -A "$out" 2>/dev/null)" ] && [ ! -e "$marker" ]; then
  echo "error: $out is not empty and not from an earlier demo; name another folder" >&2
  exit 2
fi
cd "$root"
bash scripts/setup.sh
mkdir -p "$out" && touch "$marker"
unset PYTHONHOME PYTHONPATH
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
python=.venv/bin/python
model=$out/models/demo

title() { printf '\n== %s ==\n' "$1"; }

title "1. Text: the documentation inside Python"
if [ ! -d "$out/corpus" ]; then
  "$python" -m scripts.demo_corpus "$out/corpus.new"
  mv "$out/corpus.new" "$out/corpus"
fi
ls "$out/corpus"/*/*

title "2. Vocabulary: 1,000 word pieces"
[ -e "$out/vocab.txt" ] ||
  "$python" build_vocab.py --corpus-dir "$out/corpus/train" --vocab-size 1000 --output-file "$out/vocab.txt"

# build_examples TEXT SHARDS: examples of 32 tokens; complete when the manifest stands beside the shards.
build_examples() {
  [ -e "$2/manifest.json" ] || "$python" build_pretraining_dataset.py --corpus-dir "$1" --output-dir "$2" \
    --vocab-file "$out/vocab.txt" --max-seq-length 32 --num-out-files 4 --keep-long-lines --overwrite
}
title "3. Examples for training and for evaluation"
build_examples "$out/corpus/train" "$out/pretrain_tfrecords"
build_examples "$out/corpus/heldout" "$out/heldout_tfrecords"

train=("$python" run_pretraining.py --data-dir "$out" --model-name demo --hparams scripts/demo_hparams.json
  --hparams "eval_tfrecords=$out/heldout_tfrecords/*.tfrecord*")
if [ ! -e "$model/metrics.jsonl" ]; then
  title "4. Pre-training, to be interrupted after some 500 steps"
  "${train[@]}" &
  trainer=$!
  trap 'kill -TERM "$trainer"; wait "$trainer"; exit 130' INT TERM
  while kill -0 "$trainer" 2>/dev/null && ! grep -q '"step": 500,' "$model/metrics.jsonl" 2>/dev/null; do
    sleep 0.2
  done
  kill -TERM "$trainer" 2>/dev/null || echo "the training ended by itself"
  wait "$trainer"
  trap - INT TERM
fi
title "5. Pre-training, the same command again: it goes on where it stopped"
"${train[@]}"

title "6. Evaluation on the text held out"
"${train[@]}" --hparams do_eval=true
"$python" -m scripts.plot_curves "$model/metrics.jsonl" "$out/curves.png"

task=$out/finetuning_data/acceptability
title "7. A task: is a sentence as it was written, or are two of its words swapped?"
[ -e "$task/dev.tsv" ] || "$python" -m scripts.demo_acceptability "$out/corpus/heldout/part-0.txt" "$task"

finetune=("$python" run_finetuning.py --data-dir "$out" --model-name demo --hparams scripts/demo_finetuning.json)
random=$out/random_weights/acceptability
title "8. Fine-tuning the model, three times"
"${finetune[@]}"

title "9. The same network from random weights"
"${finetune[@]}" --hparams init_checkpoint=null --hparams "model_dir=$random" --hparams "results_txt=${random}_results.txt"

title "10. Both"
"$python" -m scripts.compare_results "pre-trained=$model/results/acceptability_results.json" \
  "random weights=${random}_results.json"
