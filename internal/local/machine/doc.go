// Package machine describes the machines of simulated nodes and writes them down as the files that an agent reads.
//
//	--machine epyc-2s@static,restricted=2     preset, kubelet settings, count; also
//	              │                           epyc-2s,kubelet=static+restricted=2
//	            Parse ─► Description ─ Write ─► DIR/{sys,proc}, for host.Read and lscpu --sysroot
//	              │
//	--machine ./capture.tar.bz2               a captured machine: an archive or a folder
//
// Settings with which the machine's kubelet would not start, would panic or would never answer are refused by Parse: a
// simulated node runs the kubelet's own managers.
//
// Reading a written tree gives the description back: that is the package's round-trip test.
package machine
