package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	deviceInterval = 5 * time.Second // RFC8628/3.2: where the Company names none
	slowDown       = 5 * time.Second // RFC8628/3.5
)

// deviceRequest is the answer that starts Device Sign-In (4.6). The device code goes
// to the token endpoint and nowhere else.
type deviceRequest struct {
	deviceCode string
	userCode   string
	link       string
	linkWhole  string // with the code in it; may be empty
	interval   time.Duration
	expires    time.Time
}

// device is Device Sign-In: the User signs in on whatever device they like, and the
// agent asks from time to time whether they have (4.6).
func (s *signIn) device(ctx context.Context) error {
	d, err := s.beginDevice(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("Sign in at %s, on any device:\n\n  %s\n\nand enter the code\n\n  %s\n", s.company.name, d.link, d.userCode)
	page := d.link
	if d.linkWhole != "" {
		page = d.linkWhole
		text += fmt.Sprintf("\nThis link has the code in it:\n\n  %s\n", page)
	}
	s.agent.report(Step{Section: "4.6", Title: "Show the User the link and the code", OK: true, Detail: "to be used until " + d.expires.Format(time.RFC3339), Link: page})
	s.person.Show(text) // and no browser is opened: which device it is, is theirs to choose
	return s.awaitDevice(ctx, d)
}

func (s *signIn) beginDevice(ctx context.Context) (deviceRequest, error) {
	in, err := s.postForm(ctx, formRequest{
		section: "4.6", title: "Start Device Sign-In", url: s.company.deviceAuthorization,
		form: url.Values{"scope": {s.scope.String()}},
	})
	if err != nil {
		return deviceRequest{}, err
	}
	if in.status != http.StatusOK {
		return deviceRequest{}, fail(ExitRefused, "4.6", "no Device Sign-In").because(parseRefusal(in, s.agent.clock.Now()))
	}
	d, err := parseDeviceAnswer(in.body, s.agent.clock.Now())
	s.agent.report(Step{Section: "4.6", Title: "The answer has a link, codes and times", OK: err == nil, Detail: outcome(err)})
	if err != nil {
		return deviceRequest{}, fail(ExitRefused, "4.6", "the answer").because(err)
	}
	return d, nil
}

func parseDeviceAnswer(raw []byte, now time.Time) (deviceRequest, error) {
	var in struct {
		DeviceCode string `json:"device_code"`
		UserCode   string `json:"user_code"`
		Link       string `json:"verification_uri"`
		LinkWhole  string `json:"verification_uri_complete"`
		ExpiresIn  int64  `json:"expires_in"`
		Interval   int64  `json:"interval"`
	}
	if err := parseObject(raw, &in); err != nil {
		return deviceRequest{}, err
	}
	_, linkErr := httpsURL(in.Link)
	switch {
	case in.DeviceCode == "":
		return deviceRequest{}, errors.New("device_code is missing")
	case in.UserCode == "" || len(in.UserCode) > 100:
		return deviceRequest{}, errors.New("user_code is missing or too long to type")
	case linkErr != nil:
		return deviceRequest{}, fmt.Errorf("verification_uri: %w", linkErr)
	case in.ExpiresIn <= 0:
		return deviceRequest{}, fmt.Errorf("expires_in is %d", in.ExpiresIn)
	}
	d := deviceRequest{
		deviceCode: in.DeviceCode, userCode: in.UserCode, link: in.Link, linkWhole: in.LinkWhole,
		interval: deviceInterval, expires: now.Add(time.Duration(min(in.ExpiresIn, 24*60*60)) * time.Second),
	}
	if in.Interval > 0 {
		d.interval = time.Duration(min(in.Interval, 60*60)) * time.Second
	}
	if _, err := httpsURL(in.LinkWhole); err != nil {
		d.linkWhole = "" // the other link does as well
	}
	return d, nil
}

// awaitDevice asks at the Company's interval until the User is done (poppy-0.1/4.6#12).
func (s *signIn) awaitDevice(ctx context.Context, d deviceRequest) error {
	form := s.tokenForm(grantDeviceCode)
	form.Set("device_code", d.deviceCode)
	for {
		if !s.agent.clock.Now().Add(d.interval).Before(d.expires) {
			return fail(ExitRefused, "4.6", "the code was not used in time; run the command again for another")
		}
		if err := s.agent.clock.Wait(ctx, d.interval); err != nil {
			return err
		}
		in, err := s.exchange(ctx, formRequest{
			title: "Ask whether the User is done", form: form, secrets: []string{d.deviceCode},
			expected: []string{"authorization_pending", "slow_down"},
		})
		if err != nil {
			return err
		}
		switch code := errorCode(in); code {
		case "authorization_pending":
		case "slow_down":
			d.interval += slowDown // RFC8628/3.5: from now on, not only once
		case "access_denied": // poppy-0.1/4.6#19, and so for everything below
			return fail(ExitRefused, "4.6", "you declined, or the Company did; nothing was changed").because(parseRefusal(in, s.agent.clock.Now()))
		case "expired_token":
			return fail(ExitRefused, "4.6", "the code was not used in time; run the command again for another").because(parseRefusal(in, s.agent.clock.Now()))
		default:
			return s.complete(ctx, in, s.company.resource)
		}
	}
}
