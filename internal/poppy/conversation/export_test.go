package conversation

// The size of the transition table.
const (
	Inputs = int(inputs) - 1
	Phases = int(phases)
)

// Cell is where the table has the rule for in applied to s, counted from 0.
func Cell(s State, in Input) (input, phase int) { return int(in.kind) - 1, int(s.phase()) }
