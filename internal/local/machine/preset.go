package machine

// Presets returns the machines that have a name, in the order in which they are listed to people.
func Presets() []Description {
	// Numbers of a shape: sockets, NUMA nodes per socket, cores per node, threads per core, cores per L3, efficiency
	// cores, memory and huge pages per node, distances on one socket and between sockets.
	return []Description{
		{
			Name: "epyc-2s", arch: "amd64", model: "AMD EPYC 7513 32-Core Processor",
			Summary: "2 sockets × 2 NUMA nodes × 16 cores × 2 threads = 128 CPUs, 512 GiB, 8 cores per L3",
			shape:   shape{2, 2, 16, 2, 8, 0, 128 * gib, nil, 12, 32},
		},
		{
			Name: "xeon-2s", arch: "amd64", model: "Intel(R) Xeon(R) Gold 5318Y CPU @ 2.10GHz",
			Summary: "2 sockets × 1 NUMA node × 24 cores × 2 threads = 96 CPUs, 384 GiB",
			shape:   shape{2, 1, 24, 2, 24, 0, 192 * gib, nil, 10, 20},
		},
		{
			Name: "epyc-256", arch: "amd64", model: "AMD EPYC 9534 64-Core Processor",
			Summary: "2 sockets × 4 NUMA nodes × 16 cores × 2 threads = 256 CPUs, 768 GiB, 8 cores per L3",
			shape:   shape{2, 4, 16, 2, 8, 0, 96 * gib, nil, 12, 32},
		},
		{
			Name: "arm64-1s", arch: "arm64", model: "Neoverse-N1",
			Summary: "1 socket × 1 NUMA node × 64 cores × 1 thread = 64 CPUs, 256 GiB, arm64",
			shape:   shape{1, 1, 64, 1, 64, 0, 256 * gib, nil, 10, 20},
		},
		{
			Name: "snc2", arch: "amd64", model: "Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz",
			Summary: "2 sockets × 2 sub-NUMA clusters × 14 cores × 2 threads = 112 CPUs, 512 GiB, 8 × 1 GiB and 2048 " +
				"× 2 MiB huge pages per cluster",
			shape: shape{2, 2, 14, 2, 14, 0, 128 * gib, map[int64]int64{gib: 8, 2 << 20: 2048}, 11, 20},
		},
		{
			Name: "hybrid", arch: "amd64", model: "13th Gen Intel(R) Core(TM) i9-13900K",
			Summary: "1 socket: 8 performance cores × 2 threads + 16 efficiency cores = 32 CPUs, 64 GiB",
			shape:   shape{1, 1, 8, 2, 0, 16, 64 * gib, nil, 10, 20},
		},
		{
			Name: "hgx-h100", arch: "amd64", model: "Intel(R) Xeon(R) Platinum 8480C",
			Summary: "2 sockets × 1 NUMA node × 56 cores × 2 threads = 224 CPUs, 2 TiB; 8 × H100 80 GiB on " +
				"NVSwitch, 8 RDMA NICs, 4 PCI root complexes",
			shape: shape{2, 1, 56, 2, 56, 0, 1024 * gib, nil, 10, 21},
			board: board{model: "H100", gpus: 8, nics: 8, memory: 80 * gib, lanes: 18, rootComplexes: 4},
		},
		{
			Name: "t4-2", arch: "amd64", model: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz",
			Summary: "2 sockets × 1 NUMA node × 16 cores × 2 threads = 64 CPUs, 192 GiB; 2 × T4 16 GiB, one per socket",
			shape:   shape{2, 1, 16, 2, 16, 0, 96 * gib, nil, 10, 21},
			board:   board{model: "T4", gpus: 2, memory: 16 * gib, rootComplexes: 2},
		},
	}
}
