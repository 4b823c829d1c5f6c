// Command pack writes images of single static programs to one archive that a container runtime imports:
//
//	pack -o images.tar localhost/pause:1=bin/pause localhost/probe:1=bin/probe
//
// Each image has one layer with the program as its entrypoint and runs as user 65535. Equal programs give equal bytes:
// entries are sorted and have no time.
package main
