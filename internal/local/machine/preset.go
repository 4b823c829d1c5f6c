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
			board: board{
				gpus: 8, vendor: "nvidia", model: "H100", memory: 80 * gib, nics: 8, rootComplexes: 4,
				link: "NVLink", meshes: []mesh{{18, []int{0, 1, 2, 3, 4, 5, 6, 7}}},
			},
		},
		{
			Name: "t4-2", arch: "amd64", model: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz",
			Summary: "2 sockets × 1 NUMA node × 16 cores × 2 threads = 64 CPUs, 192 GiB; 2 × T4 16 GiB, one per socket",
			shape:   shape{2, 1, 16, 2, 16, 0, 96 * gib, nil, 10, 21},
			board:   board{gpus: 2, vendor: "nvidia", model: "T4", memory: 16 * gib, rootComplexes: 2},
		},
		{
			Name: "dgx-v100", arch: "amd64", model: "Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz",
			Summary: "2 sockets × 1 NUMA node × 20 cores × 2 threads = 80 CPUs, 512 GiB; 8 × V100 32 GiB on a cube " +
				"mesh of NVLinks, 4 RDMA NICs, 4 PCI root complexes",
			shape: shape{2, 1, 20, 2, 20, 0, 256 * gib, nil, 10, 21},
			board: board{
				gpus: 8, vendor: "nvidia", model: "V100", memory: 32 * gib, nics: 4, rootComplexes: 4, link: "NVLink",
				meshes: append(pairs(1, 0, 1, 0, 2, 1, 3, 2, 6, 3, 7, 4, 5, 4, 6, 5, 7),
					pairs(2, 0, 3, 0, 4, 1, 2, 1, 5, 2, 3, 4, 7, 5, 6, 6, 7)...),
			},
		},
		{
			Name: "pcie-bridges", arch: "amd64", model: "AMD EPYC 7543 32-Core Processor",
			Summary: "2 sockets × 1 NUMA node × 32 cores × 2 threads = 128 CPUs, 1 TiB; 8 × A100-PCIe 80 GiB, joined " +
				"in pairs by NVLink bridges, 4 PCI root complexes",
			shape: shape{2, 1, 32, 2, 8, 0, 512 * gib, nil, 10, 32},
			board: board{
				gpus: 8, vendor: "nvidia", model: "A100-PCIe", memory: 80 * gib, rootComplexes: 4, link: "NVLink",
				meshes: pairs(12, 0, 1, 2, 3, 4, 5, 6, 7),
			},
		},
		{
			Name: "mi300x", arch: "amd64", model: "AMD EPYC 9554 64-Core Processor",
			Summary: "2 sockets × 1 NUMA node × 64 cores × 2 threads = 256 CPUs, 2 TiB; 8 × MI300X 192 GiB on XGMI, " +
				"8 RDMA NICs, 8 PCI root complexes",
			shape: shape{2, 1, 64, 2, 8, 0, 1024 * gib, nil, 10, 32},
			board: board{
				gpus: 8, vendor: "amd", model: "MI300X", memory: 192 * gib, nics: 8, rootComplexes: 8,
				link: "XGMI", meshes: []mesh{{1, []int{0, 1, 2, 3, 4, 5, 6, 7}}},
			},
		},
		{
			Name: "fpga-2", arch: "amd64", model: "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz",
			Summary: "2 sockets × 1 NUMA node × 16 cores × 2 threads = 64 CPUs, 192 GiB; 2 FPGAs, one per socket",
			shape:   shape{2, 1, 16, 2, 16, 0, 96 * gib, nil, 10, 21},
			board:   board{fpgas: 2, rootComplexes: 2},
		},
	}
}
