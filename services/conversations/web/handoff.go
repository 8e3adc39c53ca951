package web

import (
	"net/http"

	"github.com/poppyfield/poppyfield/internal/platform/directory"
	"github.com/poppyfield/poppyfield/internal/poppy/conversation"
	"github.com/poppyfield/poppyfield/services/conversations/app"
)

// handOff asks for a person at the Company (Poppy 7.9).
func (h *Handlers) handOff(w http.ResponseWriter, r *http.Request, _ *directory.Company, caller app.Caller) (int, []byte, error) {
	if err := readEmpty(w, r); err != nil {
		return 0, nil, err
	}
	asked, err := h.App.HandOff(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	out, err := conversation.EncodePost(asked)
	return http.StatusAccepted, out, err
}
