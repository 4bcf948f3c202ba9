# Sourced: make_venv VENV REQUIREMENTS makes a virtual environment of the pinned packages, again only
# when they have changed or its interpreter went away. $PYTHON: the interpreter to make it with.
make_venv() {
  local venv=$1 requirements=$2
  if cmp -s "$requirements" "$venv/requirements.txt" && "$venv/bin/python" -c '' 2>/dev/null; then
    return 0
  fi
  echo "making $venv from $requirements"
  rm -rf "$venv"
  "${PYTHON:-python3}" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$venv/requirements.txt"
}
