// Command probe prints what the kernel lets it use, one key=value a line, and prints it again whenever it changes.
//
//	Cpus_allowed_list=0-3      at the start and at every change, as Mems_allowed_list
//	env:NAME=VALUE             the environment
//	dev:PATH=666               files below /dev, with their permissions
//	open:MAJOR:MINOR=ENXIO     what the kernel says to opening a character device; EPERM: the container may not use it
//	mount:DIR=TYPE             mounts
//	ready=                     everything was printed once
//
// Arguments: "open=MAJOR:MINOR" names such a device, "once" ends it there, "burn" uses as much CPU as it gets while it
// watches, with a thread for each CPU that the machine has.
package main
