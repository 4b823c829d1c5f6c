package convert

// Servers returns the number of models of servers that are kept.
func (k *Known) Servers() (n int) {
	for _, list := range k.servers {
		n += len(list)
	}
	return n
}
