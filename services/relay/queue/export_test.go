package queue

// Lanes returns how many endpoints the process keeps in mind.
func (q *Queue) Lanes() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lanes)
}
