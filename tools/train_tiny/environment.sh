# Sourced by run.sh and the Makefile: train_environment ROOT makes ROOT/build/train-venv from
# requirements.txt unless it is there already. It downloads some gigabytes (PyTorch).
train_environment() {
  local venv=$1/build/train-venv requirements=$1/tools/train_tiny/requirements.txt
  if cmp -s "$requirements" "$venv/requirements.txt"; then return 0; fi
  echo "making $venv from $requirements"
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$venv/requirements.txt"
}
