// NVIDIA's allocator beside Tenon's. A module of its own: it binds NVIDIA's driver library, which the product does not.
module github.com/tenon-project/tenon/test/bench/gpuallocator

go 1.26.0

replace github.com/tenon-project/tenon => ../../..

require (
	github.com/NVIDIA/go-gpuallocator v0.6.0
	github.com/tenon-project/tenon v0.0.0
)

require (
	github.com/NVIDIA/go-nvlib v0.12.0 // indirect
	github.com/NVIDIA/go-nvml v0.13.3-1 // indirect
	github.com/google/uuid v1.6.0 // indirect
)
