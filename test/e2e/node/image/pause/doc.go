// Command pause keeps a pod's namespaces: it waits to be ended, and reaps what others leave to it.
package main
