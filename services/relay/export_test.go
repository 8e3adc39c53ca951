package relay

import "github.com/poppyfield/poppyfield/services/relay/app"

// App returns the use cases, for what only the queue calls.
func (s *Service) App() *app.App { return s.app }
