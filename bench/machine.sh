# Sourced, in the root: cpu, and machine, the folder of bench/results that belongs to it: $1, or
# processor and count, e.g. amd-epyc-2.
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
machine=${1:-$(tr -cs 'A-Za-z0-9\n' '-' <<<"${cpu,,}" | sed 's/^-//; s/-$//')-$(nproc)}
out=bench/results/$machine
mkdir -p "$out"
