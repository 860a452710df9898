module firsthop/perf/peers/relay

go 1.22
