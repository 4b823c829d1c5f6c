// Package machine describes the machines of simulated nodes and writes them down as the files that an agent reads.
//
//	--machine epyc-2s@static,restricted=2     preset, kubelet settings, count; also
//	              │                           epyc-2s,kubelet=static+restricted=2
//	            Parse ─► Description ─ Write ─► DIR/{sys,proc}, for host.Read and lscpu --sysroot
//	              │
//	--machine ./capture.tar.bz2               a captured machine: an archive or a folder
package machine
