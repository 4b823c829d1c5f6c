package reservation

// Rest returns what a reservation keeps of all beside its users: nothing, the zero A, of a reservation for one pod that
// has a user, else what minus leaves. It is the one rule of what a reservation has left, for amounts by resource as for
// the CPUs and devices of a machine. minus changes neither of its arguments.
func Rest[A any](all A, once bool, users []A, minus func(left, user A) A) (rest A) {
	if once && len(users) > 0 {
		return rest
	}
	rest = all
	for _, user := range users {
		rest = minus(rest, user)
	}
	return rest
}
