package machine

// Presets returns the machines that have a name, in the order in which they are listed to people.
func Presets() []Description {
	return []Description{
		{
			Name: "epyc-2s", arch: "amd64", model: "AMD EPYC 7513 32-Core Processor",
			Summary: "2 sockets × 2 NUMA nodes × 16 cores × 2 threads = 128 CPUs, 512 GiB, 8 cores per L3",
			shape: shape{
				sockets: 2, numaPerSocket: 2, coresPerNUMA: 16, threads: 2, coresPerL3: 8,
				memoryBytes: 128 * gib, sameSocket: 12, otherSocket: 32,
			},
		},
		{
			Name: "xeon-2s", arch: "amd64", model: "Intel(R) Xeon(R) Gold 5318Y CPU @ 2.10GHz",
			Summary: "2 sockets × 1 NUMA node × 24 cores × 2 threads = 96 CPUs, 384 GiB",
			shape: shape{
				sockets: 2, numaPerSocket: 1, coresPerNUMA: 24, threads: 2, coresPerL3: 24,
				memoryBytes: 192 * gib, sameSocket: 10, otherSocket: 20,
			},
		},
		{
			Name: "epyc-256", arch: "amd64", model: "AMD EPYC 9534 64-Core Processor",
			Summary: "2 sockets × 4 NUMA nodes × 16 cores × 2 threads = 256 CPUs, 768 GiB, 8 cores per L3",
			shape: shape{
				sockets: 2, numaPerSocket: 4, coresPerNUMA: 16, threads: 2, coresPerL3: 8,
				memoryBytes: 96 * gib, sameSocket: 12, otherSocket: 32,
			},
		},
		{
			Name: "arm64-1s", arch: "arm64", model: "Neoverse-N1",
			Summary: "1 socket × 1 NUMA node × 64 cores × 1 thread = 64 CPUs, 256 GiB, arm64",
			shape: shape{
				sockets: 1, numaPerSocket: 1, coresPerNUMA: 64, threads: 1, coresPerL3: 64,
				memoryBytes: 256 * gib, sameSocket: 10, otherSocket: 20,
			},
		},
		{
			Name: "snc2", arch: "amd64", model: "Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz",
			Summary: "2 sockets × 2 sub-NUMA clusters × 14 cores × 2 threads = 112 CPUs, 512 GiB, 8 × 1 GiB and 2048 " +
				"× 2 MiB huge pages per cluster",
			shape: shape{
				sockets: 2, numaPerSocket: 2, coresPerNUMA: 14, threads: 2, coresPerL3: 14,
				memoryBytes: 128 * gib, hugepages: map[int64]int64{gib: 8, 2 << 20: 2048},
				sameSocket: 11, otherSocket: 20,
			},
		},
		{
			Name: "hybrid", arch: "amd64", model: "13th Gen Intel(R) Core(TM) i9-13900K",
			Summary: "1 socket: 8 performance cores × 2 threads + 16 efficiency cores = 32 CPUs, 64 GiB",
			shape: shape{
				sockets: 1, numaPerSocket: 1, coresPerNUMA: 8, threads: 2, efficiencyCores: 16,
				memoryBytes: 64 * gib, sameSocket: 10, otherSocket: 20,
			},
		},
	}
}
