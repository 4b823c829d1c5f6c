// Command inside runs in the guests of the node tests. `inside serve` takes commands from the host over a virtio port
// and answers what they printed; `inside look` prints all groups of pods with their processes; `inside watch` looks on
// from one moment to the next whether any two pods share a CPU that is exclusive to one of them.
package main
